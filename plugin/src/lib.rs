//! Gang scheduling for the stock kube-scheduler: all pods of a gang start together, or none does and none holds
//! anything.
//!
//! [`gang`] decides, [`cycle`] carries a pod through the extension points, this file hangs both into the scheduler.
//! docs/semantics.md states every rule.

pub mod bridge;
pub mod config;
pub mod cycle;
pub mod gang;
pub mod order;

use std::cell::RefCell;
use std::time::Duration;

use kube_scheduler_sdk::MIN_NODE_SCORE;
use kube_scheduler_sdk::api::pod_requests;
use kube_scheduler_sdk::bridge::Bridge;
use kube_scheduler_sdk::prelude::*;

use crate::cycle::{Cycle, Member, Permit, PostFilter, PreFilter, Refusal, Rules, Then, Wants};
use crate::gang::membership::{self, CONVENTIONS, Labelled};
use crate::gang::reason::Reason;

/// The plugin.
#[derive(Debug)]
pub struct Gang {
    /// What is wrong with it is told to gang pods; others don't suffer from it.
    config: Result<config::Config, String>,
    bridge: Bridge,
    /// What PreFilter said of the pod in the cycle, for PostFilter. No truth about the cluster: if it's lost, PostFilter
    /// takes the pod for one that found no node.
    refused: RefCell<Option<(String, Refusal)>>,
    /// The nodes' scores for the pod in the cycle, from PreScore for Score.
    scores: RefCell<Vec<(String, i64)>>,
}

struct PodLabels<'a>(Pod<'a>);

impl<'a> Labelled<'a> for PodLabels<'a> {
    fn label(&self, name: &str) -> Option<&'a str> {
        self.0.label(name).ok().flatten()
    }

    fn annotation(&self, name: &str) -> Option<&'a str> {
        self.0.annotation(name).ok().flatten()
    }
}

impl Gang {
    /// The pod as a gang's member, `None` for an ordinary pod.
    fn member(pod: Pod<'_>) -> Result<Option<Member>, Status> {
        let labels = PodLabels(pod);
        let gang = match membership::of(&labels, pod.namespace()?) {
            Ok(None) => return Ok(None),
            Ok(Some(gang)) => gang,
            Err(conflict) => return Err(Status::unresolvable(Reason::Conflict(conflict).to_string())),
        };
        let spec = pod.spec()?;
        let facts = gang.convention.facts.iter().filter_map(|&name| {
            let value = labels.label(name).or_else(|| labels.annotation(name))?;
            Some((name.to_owned(), value.to_owned()))
        });
        Ok(Some(Member {
            uid: pod.uid()?.into(),
            name: pod.name()?.into(),
            priority: spec.priority()?.unwrap_or(0),
            preempts: spec.preemption_policy()? != Some("Never"),
            facts: facts.collect(),
            gang,
        }))
    }

    /// What PreFilter says of a pod without a gang.
    fn plain_pod(&self, pod: Pod<'_>) -> Result<PreFilterResult, Status> {
        let Ok(config) = &self.config else { return Ok(PreFilterResult::Skip) };
        if !config.hold_back_plain_pods {
            return Ok(PreFilterResult::Skip);
        }
        let requests = pod_requests(pod)?;
        let request = |name: &str| in_bridge_units(name, requests.get(name));
        let open = self.cycle()?.open_nodes_for_plain_pod(pod.uid()?, pod.spec()?.priority()?.unwrap_or(0), request);
        Ok(open.map_or(PreFilterResult::Skip, PreFilterResult::Nodes))
    }

    fn cycle(&self) -> Result<Cycle<'_, Bridge>, Status> {
        match &self.config {
            Ok(config) => Ok(Cycle { bridge: &self.bridge, config }),
            Err(problem) => Err(Status::unresolvable(Reason::Config(problem.clone()).to_string())),
        }
    }

    /// Takes what PreFilter said of this pod.
    fn take_refusal(&self, uid: &str) -> Option<Refusal> {
        self.refused.take().filter(|(refused, _)| refused == uid).map(|(_, refusal)| refusal)
    }
}

/// The pod's rules about pods around it. One that forbids others on its own node, or a host port, most often means its
/// like, so members are planned apart.
fn rules(pod: Pod<'_>) -> Result<Rules, Status> {
    let spec = pod.spec()?;
    let mut rules = Rules::None;
    for container in spec.containers()? {
        for port in container?.ports()? {
            if port?.host_port()? != 0 {
                rules = Rules::Apart;
            }
        }
    }
    for constraint in spec.topology_spread_constraints()? {
        if constraint?.when_unsatisfiable()? == "DoNotSchedule" {
            return Ok(Rules::Unseen);
        }
    }
    let Some(affinity) = spec.affinity()? else { return Ok(rules) };
    if let Some(near) = affinity.pod_affinity()?
        && near.required()?.next().is_some()
    {
        return Ok(Rules::Unseen);
    }
    if let Some(far) = affinity.pod_anti_affinity()? {
        for term in far.required()? {
            if term?.topology_key()? != "kubernetes.io/hostname" {
                return Ok(Rules::Unseen);
            }
            rules = Rules::Apart;
        }
    }
    Ok(rules)
}

fn in_bridge_units(resource: &str, quantity: Quantity) -> i64 {
    match resource {
        "cpu" => quantity.milli_value(),
        // Every pod takes one of a node's places.
        "pods" => 1,
        _ => quantity.value(),
    }
}

impl Plugin for Gang {
    fn new(config: &Config) -> Result<Self, Status> {
        let config = config
            .parse::<config::Config>()
            .map_err(|status| status.reason().to_owned())
            .and_then(config::Config::checked);
        if let Err(problem) = &config {
            klog::error("gang plugin refuses gangs until its configuration is right", &[("problem", problem)]);
        }
        let bridge = Bridge::new(CONVENTIONS.into_iter().map(membership::Convention::source).collect());
        Ok(Self { config, bridge, refused: RefCell::default(), scores: RefCell::default() })
    }
}

/// A pod's labels changed: it may have joined or left a gang. The bit of 1.32 to 1.34; later ones have another event of
/// nodes there, which no pod event carries.
const POD_LABEL: Action = Action(1 << 7);

impl EnqueueExtensions for Gang {
    fn events_to_register(&self) -> Vec<ClusterEvent> {
        let node = Action::ADD.or(Action::UPDATE_NODE_ALLOCATABLE).or(Action::UPDATE_NODE_LABEL);
        vec![
            ClusterEvent { resource: EventResource::Pod, action: Action::DELETE.or(POD_LABEL) },
            ClusterEvent { resource: EventResource::Node, action: node.or(Action::UPDATE_NODE_TAINT) },
        ]
    }
}

impl PreFilterPlugin for Gang {
    fn pre_filter(&self, cx: &CycleContext) -> Result<PreFilterResult, Status> {
        let pod = cx.pod()?;
        let Some(member) = Self::member(pod)? else { return self.plain_pod(pod) };
        self.refused.take();
        let refusal = match self.cycle() {
            Ok(cycle) => match cycle.pre_filter(&member) {
                PreFilter::Go => return Ok(PreFilterResult::Skip),
                PreFilter::Only(nodes) => return Ok(PreFilterResult::Nodes(nodes)),
                PreFilter::Refuse(refusal) => refusal,
            },
            Err(status) => Refusal { reason: status.reason().to_owned(), then: Then::GiveUp },
        };
        let status = if refusal.then == Then::Preempt {
            Status::unschedulable(refusal.reason.clone())
        } else {
            Status::unresolvable(refusal.reason.clone())
        };
        self.refused.replace(Some((member.uid, refusal)));
        Err(status)
    }
}

impl FilterPlugin for Gang {
    fn filter(&self, _: &NodeContext) -> Result<(), Status> {
        Ok(())
    }
}

impl PostFilterPlugin for Gang {
    fn post_filter(&self, cx: &PostFilterContext) -> Result<PostFilterResult, Status> {
        let pod = cx.pod()?;
        let member = match Self::member(pod) {
            Ok(Some(member)) => member,
            Ok(None) => return Err(Status::unschedulable("")),
            Err(_) => return Err(Status::unresolvable("")),
        };
        let Ok(cycle) = self.cycle() else { return Err(Status::unresolvable("")) };
        let wants = Wants { has_place: !pod.status()?.nominated_node_name()?.is_empty(), rules: rules(pod)? };
        match cycle.post_filter(&member, self.take_refusal(&member.uid).as_ref(), wants) {
            PostFilter::Single => Err(Status::unschedulable("")),
            PostFilter::Evicted(Some(node)) => Ok(PostFilterResult::Nominate(node)),
            PostFilter::Evicted(None) => Ok(PostFilterResult::Done),
            PostFilter::Keep => Err(Status::unresolvable("")),
            // A place nominated before would keep others off it.
            PostFilter::Refuse(reason) => Ok(PostFilterResult::ClearNomination(Status::unresolvable(reason))),
        }
    }
}

impl PreScorePlugin for Gang {
    fn pre_score(&self, cx: &PreScoreContext) -> Result<PreScoreResult, Status> {
        // Off by default, and then without so much as a look at the pod.
        let Ok(config) = &self.config else { return Ok(PreScoreResult::Skip) };
        if !config.scores() {
            return Ok(PreScoreResult::Skip);
        }
        let pod = cx.pod()?;
        let Some(member) = Self::member(pod)? else { return Ok(PreScoreResult::Skip) };
        let requests = pod_requests(pod)?;
        let scores = self.cycle()?.scores(&member, |name| in_bridge_units(name, requests.get(name)));
        Ok(match scores {
            Some(scores) => {
                self.scores.replace(scores);
                PreScoreResult::Score
            }
            None => PreScoreResult::Skip,
        })
    }
}

impl ScorePlugin for Gang {
    fn score(&self, cx: &NodeContext) -> Result<i64, Status> {
        let (scores, node) = (self.scores.borrow(), cx.node_name()?);
        Ok(scores.binary_search_by(|(name, _)| name.as_str().cmp(node)).map_or(MIN_NODE_SCORE, |i| scores[i].1))
    }
}

impl ReservePlugin for Gang {
    fn reserve(&self, _: &NodeContext) -> Result<(), Status> {
        Ok(())
    }

    fn unreserve(&self, cx: &BindingContext) -> Result<(), Status> {
        let Ok(Some(member)) = Self::member(cx.pod()?) else { return Ok(()) };
        self.cycle()?.unreserve(&member)?;
        Ok(())
    }
}

impl PermitPlugin for Gang {
    fn permit(&self, cx: &NodeContext) -> Result<PermitResult, Status> {
        let Some(member) = Self::member(cx.pod()?)? else { return Ok(PermitResult::Allow) };
        match self.cycle()?.permit(&member) {
            Ok(Permit::Allow) => Ok(PermitResult::Allow),
            Ok(Permit::Wait(ms)) => Ok(PermitResult::Wait(Duration::from_millis(ms.into()))),
            Err(reason) => Err(Status::unschedulable(reason)),
        }
    }
}

impl BindPlugin for Gang {
    fn bind(&self, _: &BindingContext) -> Result<BindResult, Status> {
        Ok(BindResult::Skip)
    }
}

impl PostBindPlugin for Gang {
    fn post_bind(&self, _: &BindingContext) -> Result<(), Status> {
        Ok(())
    }
}

plugin!(Gang: Enqueue, PreFilter, Filter, PostFilter, PreScore, Score, Reserve, Permit, Bind, PostBind);
