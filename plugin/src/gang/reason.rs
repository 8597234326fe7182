//! What the user is told. Every text names the gang and holds no figure that changes by itself, so that the same
//! situation gives the same text; docs/messages.md lists them.

use core::fmt;

use kube_scheduler_sdk::Quantity;

use super::fit::Short;
use super::membership::{Conflict, GangId};
use super::quorum::Incomplete;
use super::spec::Invalid;

/// Why a gang, or a pod of it, doesn't go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The pod names two gangs.
    Conflict(Conflict),
    /// The plugin's configuration can't be used.
    Config(String),
    /// The scheduler has no bridge, or it failed.
    Bridge(String),
    /// The cluster doesn't know the PodGroup resource.
    NoResource(GangId),
    /// The PodGroup isn't there.
    NoObject(GangId),
    /// The gang's description can't be followed.
    Invalid(GangId, Invalid),
    /// Too few members.
    Incomplete(GangId, Incomplete),
    /// A linked gang holds this one up.
    Linked(GangId, Box<Self>),
    /// The missing members can't fit.
    NoRoom(GangId, Short),
    /// A member found no node.
    NoNode {
        /// The gang.
        gang: GangId,
        /// The member's name.
        member: String,
        /// Members that gave way.
        held: u32,
        /// Members that run already: the gang is broken, not waiting.
        started: u32,
        /// Its minimum.
        min: u32,
        /// What the missing members lack, where it's known.
        short: Option<Short>,
    },
    /// A held member went.
    MemberLeft {
        /// The gang.
        gang: GangId,
        /// The member's name.
        member: String,
    },
    /// The gang wasn't whole in time.
    Deadline {
        /// The gang.
        gang: GangId,
        /// How long its members were held.
        timeout_ms: u64,
        /// The gang itself said so.
        own: bool,
    },
    /// An older or more important gang comes first.
    Behind {
        /// The gang.
        gang: GangId,
        /// The one that comes first.
        head: String,
    },
    /// Evicted pods are about to end.
    Victims {
        /// The gang.
        gang: GangId,
        /// How many.
        count: u32,
    },
}

impl Reason {
    /// Another gang, by its key, comes first.
    #[must_use]
    pub fn behind(gang: &GangId, head: &str) -> Self {
        let head = GangId::from_key(head).map_or_else(|| head.into(), |id| id.to_string());
        Self::Behind { gang: gang.clone(), head }
    }

    /// The value of a metric's `reason` label.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Conflict(_) => "conflict",
            Self::Config(_) => "config",
            Self::Bridge(_) => "bridge",
            Self::NoResource(_) => "no_resource",
            Self::NoObject(_) => "no_object",
            Self::Invalid(..) => "invalid",
            Self::Incomplete(..) => "incomplete",
            Self::Linked(..) => "linked",
            Self::NoRoom(..) => "no_room",
            Self::NoNode { .. } => "no_node",
            Self::MemberLeft { .. } => "member_left",
            Self::Deadline { .. } => "deadline",
            Self::Behind { .. } => "behind",
            Self::Victims { .. } => "victims",
        }
    }
}

/// A figure in the bridge's units as Kubernetes writes it.
#[must_use]
pub fn amount(resource: &str, figure: i64) -> String {
    match resource {
        "cpu" => Quantity::from_milli(figure).to_string(),
        "memory" | "ephemeral-storage" => format!("{:#}", Quantity::from_units(figure)),
        name if name.starts_with("hugepages-") => format!("{:#}", Quantity::from_units(figure)),
        _ => figure.to_string(),
    }
}

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, wanted, free, of, admitted, missing, fitting, role, floor } = self;
        if *floor {
            let resource = resource.as_deref().unwrap_or_default();
            let amount = |figure| amount(resource, figure);
            return write!(
                f,
                "minResources lacks {resource} {}: {} wanted, {} free",
                amount(wanted.saturating_sub(*free)),
                amount(*wanted),
                amount(*free)
            );
        }
        write!(f, "room for {fitting} of the {missing} missing members")?;
        if let Some(role) = role {
            write!(f, " of role {role}")?;
        }
        if !*admitted {
            return write!(f, ": no node admits {of} of them (node selector, affinity, taint or cordon)");
        }
        let Some(resource) = resource else {
            return f.write_str(": no other node admits a member and has all it asks for");
        };
        let amount = |figure| amount(resource, figure);
        if free < wanted {
            let lacks = amount(wanted.saturating_sub(*free));
            write!(f, ": lacks {resource} {lacks}")?;
            if of < missing {
                write!(f, " for {of} of them")?;
            }
            write!(f, " ({} wanted, {} free)", amount(*wanted), amount(*free))
        } else {
            write!(
                f,
                ": {resource} {} wanted, {} free in total, but in pieces too small for a member",
                amount(*wanted),
                amount(*free)
            )
        }
    }
}

impl fmt::Display for Incomplete {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { role, have, want, gated, terminating } = self;
        write!(f, "have {have} of {want} members")?;
        if let Some(role) = role {
            write!(f, " of role {role}")?;
        }
        if *gated > 0 {
            write!(f, "; {gated} of {want} members are gated")?;
        }
        if *terminating > 0 {
            write!(f, "; {terminating} terminating")?;
        }
        Ok(())
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict(Conflict { places: [(a, gang_a), (b, gang_b)] }) => {
                write!(f, "the pod names two gangs: {a} says {gang_a}, {b} says {gang_b}; keep one")
            }
            Self::Config(problem) => {
                write!(f, "the gang plugin's configuration is wrong, so no gang starts: {problem}")
            }
            Self::Bridge(problem) => write!(f, "the gang plugin can't work: {problem}"),
            Self::NoResource(gang) => match gang.convention.object {
                Some(object) => write!(
                    f,
                    "gang {gang}: the cluster doesn't know {}.{}/{}; install the PodGroup CRD",
                    object.resource, object.group, object.version
                ),
                None => write!(f, "gang {gang}: the cluster doesn't know its resource"),
            },
            Self::NoObject(gang) => write!(f, "waiting for PodGroup {gang}: PodGroup {} not found", gang.name),
            Self::Invalid(gang, Invalid { place, problem }) => write!(f, "gang {gang}: {place} {problem}"),
            Self::Incomplete(gang, incomplete) => write!(f, "gang {gang} is incomplete: {incomplete}"),
            Self::Linked(gang, why) => write!(f, "gang {gang} starts only with its linked gangs: {why}"),
            Self::NoRoom(gang, short) => write!(f, "gang {gang} can't start: {short}"),
            Self::NoNode { gang, member, held, started, min, short } => {
                if *started > 0 {
                    write!(f, "gang {gang} is broken, {started}/{min} started: member {member} finds no node")?;
                } else {
                    write!(f, "gang {gang} can't start: member {member} finds no node")?;
                }
                if *held > 0 {
                    write!(f, ", so {held} held members give way")?;
                }
                match short {
                    Some(short) => write!(f, " ({short})"),
                    None => Ok(()),
                }
            }
            Self::MemberLeft { gang, member } => write!(
                f,
                "gang {gang} gives way: held member {member} was deleted, preempted or timed out by the scheduler"
            ),
            Self::Deadline { gang, timeout_ms, own } => {
                let whose = if *own { "its own timeout" } else { "the plugin's defaultTimeoutSeconds" };
                write!(f, "gang {gang} was not whole within {}s ({whose})", timeout_ms / 1000)
            }
            Self::Behind { gang, head } => write!(f, "gang {gang} comes after gang {head}, which waits for room"),
            Self::Victims { gang, count } => {
                write!(f, "gang {gang} waits for {count} evicted pods to end")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::membership::X_K8S;
    use super::*;

    #[test]
    fn texts() {
        let gang = || GangId { convention: &X_K8S, namespace: "ns".into(), name: "ga".into() };
        let short = |wanted, free| Short {
            resource: Some("cpu".into()),
            wanted,
            free,
            of: 3,
            admitted: true,
            missing: 3,
            fitting: 1,
            role: None,
            floor: false,
        };
        let incomplete = |gated, role: Option<&str>| Incomplete {
            role: role.map(str::to_owned),
            have: 2,
            want: 4,
            gated,
            terminating: 0,
        };
        for (reason, text) in [
            (Reason::Incomplete(gang(), incomplete(0, None)), "gang ns/ga is incomplete: have 2 of 4 members"),
            (
                Reason::Incomplete(gang(), incomplete(2, Some("worker"))),
                "gang ns/ga is incomplete: have 2 of 4 members of role worker; 2 of 4 members are gated",
            ),
            (
                Reason::NoRoom(gang(), short(12_000, 4500)),
                "gang ns/ga can't start: room for 1 of the 3 missing members: lacks cpu 7500m (12 wanted, 4500m free)",
            ),
            (
                Reason::NoRoom(gang(), short(12_000, 12_000)),
                "gang ns/ga can't start: room for 1 of the 3 missing members: cpu 12 wanted, 12 free in total, but in \
                 pieces too small for a member",
            ),
            (
                Reason::NoRoom(gang(), Short { of: 2, ..short(12_000, 4500) }),
                "gang ns/ga can't start: room for 1 of the 3 missing members: lacks cpu 7500m for 2 of them (12 wanted, \
                 4500m free)",
            ),
            (
                Reason::NoRoom(gang(), Short { resource: None, admitted: false, ..short(0, 0) }),
                "gang ns/ga can't start: room for 1 of the 3 missing members: no node admits 3 of them (node selector, \
                 affinity, taint or cordon)",
            ),
            (
                Reason::NoRoom(gang(), Short { floor: true, ..short(18_000, 16_000) }),
                "gang ns/ga can't start: minResources lacks cpu 2: 18 wanted, 16 free",
            ),
            (Reason::NoObject(gang()), "waiting for PodGroup ns/ga: PodGroup ga not found"),
            (
                Reason::NoResource(gang()),
                "gang ns/ga: the cluster doesn't know podgroups.scheduling.x-k8s.io/v1alpha1; install the PodGroup CRD",
            ),
            (
                Reason::Deadline { gang: gang(), timeout_ms: 60_000, own: false },
                "gang ns/ga was not whole within 60s (the plugin's defaultTimeoutSeconds)",
            ),
            (
                Reason::NoNode { gang: gang(), member: "ga-9".into(), held: 9, started: 0, min: 10, short: None },
                "gang ns/ga can't start: member ga-9 finds no node, so 9 held members give way",
            ),
            (
                Reason::NoNode { gang: gang(), member: "ga-1".into(), held: 0, started: 1, min: 2, short: None },
                "gang ns/ga is broken, 1/2 started: member ga-1 finds no node",
            ),
        ] {
            assert_eq!(reason.to_string(), text);
        }
    }

    #[test]
    fn amounts_are_written_as_in_manifests() {
        for (resource, figure, text) in [
            ("cpu", 1500, "1500m"),
            ("cpu", 2000, "2"),
            ("memory", 3 << 29, "1536Mi"),
            ("example.com/gpu", 8, "8"),
            ("pods", 1, "1"),
        ] {
            assert_eq!(amount(resource, figure), text);
        }
    }
}
