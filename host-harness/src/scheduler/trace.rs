//! What happened, in order.

use std::fmt;
use std::rc::Rc;

use serde::Serialize;

/// The namespace and name of a pod, `default/ga-0`; cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodKey(Rc<str>);

impl PodKey {
    /// The key of a pod.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self(format!("{namespace}/{name}").into())
    }

    /// The whole key.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.0.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or(&self.0, |(_, name)| name)
    }
}

impl fmt::Display for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for PodKey {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// All that happened, in order; nothing is ever changed or taken away.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Trace {
    records: Vec<Record>,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Record {
    /// Virtual milliseconds since the start.
    pub at_ms: i64,
    /// What.
    #[serde(flatten)]
    pub what: What,
}

/// How a scheduling cycle ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// The pod goes on to its node, at once or after waiting at Permit.
    Scheduled,
    /// It can't be placed now.
    Unschedulable,
    /// Something broke.
    Error,
}

/// What happened. A pod is named by its namespace and name, `default/ga-0`; another object as `kind/namespace/name`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "what", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[expect(missing_docs, reason = "the fields are explained by their record")]
pub enum What {
    /// A pod came into the API.
    Arrived { pod: PodKey, node: String },
    /// An object other than a pod was created.
    Created { object: String },
    /// An object was changed from outside.
    Patched { object: String },
    /// An object is gone from the API.
    Deleted { object: String },
    /// An object got its deletionTimestamp and stays until its finalizers are gone.
    Terminating { object: String },
    /// An action couldn't be done, as the API server would refuse it.
    Refused { action: String, reason: String },
    /// A scheduling cycle ended: `attempt` counts the pod's own, `plugin` refused, `node` was chosen.
    Attempt { pod: PodKey, attempt: u32, outcome: Outcome, node: String, plugins: Vec<String>, reason: String },
    /// PostFilter made or (with an empty node) cleared a nomination.
    Nominated { pod: PodKey, node: String },
    /// A pod is held at Permit, for at most so many milliseconds.
    Waiting { pod: PodKey, node: String, timeout_ms: i64 },
    /// A pod held at Permit was let go.
    Allowed { pod: PodKey },
    /// A pod held at Permit was refused.
    Rejected { pod: PodKey, plugin: String, reason: String },
    /// A pod has its node.
    Bound { pod: PodKey, node: String },
    /// A binding failed.
    BindFailed { pod: PodKey, node: String, reason: String },
    /// A pod began to run.
    Running { pod: PodKey },
    /// A pod ended.
    Finished { pod: PodKey, phase: String },
    /// A pod was deleted to make room for another.
    Evicted { pod: PodKey, by: String, reason: String },
    /// The guest wrote to the scheduler's log.
    Log { error: bool, message: String, pairs: Vec<(String, String)> },
    /// A call of the guest didn't come to an answer.
    GuestFault { call: String, reason: String },
    /// An event was recorded.
    Event { regarding: String, r#type: String, reason: String, note: String },
    /// A pod was moved to the active queue by request.
    Activated { pod: PodKey },
    /// The PodScheduled condition of a pod changed.
    Condition { pod: PodKey, reason: String, message: String },
    /// The scheduler stopped.
    SchedulerStopped { reason: String },
    /// The scheduler started.
    SchedulerStarted,
    /// The API server stopped answering the scheduler.
    ApiAway,
    /// The API server answers the scheduler again.
    ApiBack,
}

impl Trace {
    /// The records so far.
    #[must_use]
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    pub(super) fn push(&mut self, at_ms: i64, what: What) {
        self.records.push(Record { at_ms, what });
    }
}

impl fmt::Display for Trace {
    /// One line per record.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.records.iter().try_for_each(|record| writeln!(f, "{record}"))
    }
}

impl fmt::Display for Record {
    /// Time in seconds, a word, and what it is about, on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>5}.{:03} ", self.at_ms / 1000, self.at_ms % 1000)?;
        match &self.what {
            What::Arrived { pod, node } if node.is_empty() => write!(f, "arrived {pod}"),
            What::Arrived { pod, node } => write!(f, "arrived {pod} on {node}"),
            What::Created { object } => write!(f, "created {object}"),
            What::Patched { object } => write!(f, "patched {object}"),
            What::Deleted { object } => write!(f, "deleted {object}"),
            What::Terminating { object } => write!(f, "terminating {object}"),
            What::Refused { action, reason } => write!(f, "refused {action}: {}", Line(reason)),
            What::Attempt { pod, attempt, outcome, node, plugins, reason } => {
                write!(f, "attempt {pod} #{attempt} ")?;
                match outcome {
                    Outcome::Scheduled => return write!(f, "-> {node}"),
                    Outcome::Unschedulable => f.write_str("unschedulable")?,
                    Outcome::Error => f.write_str("error")?,
                }
                write!(f, " [{}] {}", plugins.join(","), Line(reason))
            }
            What::Nominated { pod, node } if node.is_empty() => write!(f, "nomination of {pod} cleared"),
            What::Nominated { pod, node } => write!(f, "nominated {pod} -> {node}"),
            What::Waiting { pod, node, timeout_ms } => write!(f, "waiting {pod} on {node} for {timeout_ms}ms"),
            What::Allowed { pod } => write!(f, "allowed {pod}"),
            What::Rejected { pod, plugin, reason } => write!(f, "rejected {pod} [{plugin}] {}", Line(reason)),
            What::Bound { pod, node } => write!(f, "bound {pod} -> {node}"),
            What::BindFailed { pod, node, reason } => write!(f, "bind failed {pod} -> {node}: {}", Line(reason)),
            What::Running { pod } => write!(f, "running {pod}"),
            What::Finished { pod, phase } => write!(f, "finished {pod} {phase}"),
            What::Evicted { pod, by, reason } => write!(f, "evicted {pod} for {by}: {}", Line(reason)),
            What::Log { error, message, pairs } => {
                write!(f, "log {} {}", if *error { "E" } else { "I" }, Line(message))?;
                pairs.iter().try_for_each(|(key, value)| write!(f, " {key}={}", Line(value)))
            }
            What::GuestFault { call, reason } => write!(f, "guest fault in {call}: {}", Line(reason)),
            What::Event { regarding, r#type, reason, note } => {
                write!(f, "event {regarding} {type} {reason}: {}", Line(note))
            }
            What::Activated { pod } => write!(f, "activated {pod}"),
            What::Condition { pod, reason, message } => write!(f, "condition {pod} {reason}: {}", Line(message)),
            What::SchedulerStopped { reason } => write!(f, "scheduler stopped: {}", Line(reason)),
            What::SchedulerStarted => f.write_str("scheduler started"),
            What::ApiAway => f.write_str("api away"),
            What::ApiBack => f.write_str("api back"),
        }
    }
}

/// A text on one line.
struct Line<'a>(&'a str);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = self.0.split(['\n', '\r']);
        f.write_str(lines.next().unwrap_or_default())?;
        lines.try_for_each(|line| write!(f, "\\n{line}"))
    }
}
