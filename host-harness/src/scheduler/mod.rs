//! A kube-scheduler 1.32 with its API server, under a virtual clock.
//!
//! [`Simulator::push`] says what happens to the cluster and when, [`Simulator::run_until`] lets time pass,
//! [`Simulator::trace`] tells all that happened and [`Simulator::state`] how things stand. The same input and the same
//! seed give the same trace, byte by byte.
//!
//! The scheduler is the upstream one in what it decides and when: queues with backoff and event hints, filters, scores,
//! preemption, Permit, binding. Informers and the kubelet take no time; a cycle and a binding take what [`SimConfig`]
//! says.

mod action;
mod affinity;
mod binding;
mod config;
mod core;
mod cycle;
mod event;
mod filter;
mod host;
mod informer;
mod node;
mod plugin;
mod pod;
mod preempt;
mod queue;
mod resource;
mod score;
mod selector;
mod spread;
mod state;
#[cfg(test)]
mod tests;
mod trace;
mod volume;

use std::rc::Rc;

use self::core::{Core, Task};
use self::event::Interests;
use self::host::World;
use self::pod::{PodId, Scheduling};
use self::queue::Queue;
use self::selector::Selectors;
use self::volume::Storage;
use crate::bridge::{Bridge, Identity};

pub use self::action::{Action, ObjectRef};
pub use self::config::SimConfig;
pub use self::core::EventState;
pub use self::plugin::Plugin;
pub use self::state::{PodState, State};
pub use self::trace::{Outcome, PodKey, Record, Trace, What};

/// Starts the plugin, at the start of the simulation and after each restart of the scheduler.
pub type StartPlugin = Rc<dyn Fn() -> Result<Box<dyn Plugin>, String>>;

/// The release that is simulated.
const KUBERNETES: &str = "v1.32.5";

/// A scheduler, an API server, and a clock.
pub struct Simulator {
    world: World,
    plugin: Option<Box<dyn Plugin>>,
    start: Option<StartPlugin>,
}

impl Simulator {
    /// An empty cluster at time 0, and a scheduler that has just started.
    ///
    /// # Errors
    /// The plugin doesn't start.
    pub fn new(config: SimConfig, plugin: Option<StartPlugin>) -> Result<Self, String> {
        let bridge = Self::bridge(&config);
        let world = World { core: Core::new(config), bridge };
        let mut simulator = Self { world, plugin: None, start: plugin };
        simulator.start_scheduler()?;
        Ok(simulator)
    }

    fn bridge(config: &SimConfig) -> Bridge {
        Bridge::new(Identity {
            plugin: config.plugin_name.clone(),
            profile: config.scheduler_name.clone(),
            kubernetes: KUBERNETES.to_owned(),
        })
    }

    /// Lets something happen at a time; one in the past happens now. What happens at the same time happens in the order
    /// pushed, before the scheduler does anything at that time.
    pub fn push(&mut self, at_ms: i64, action: Action) {
        let core = &mut self.world.core;
        core.plan(at_ms.max(core.now), 0, Task::Act(action));
    }

    /// Lets time pass up to and including this moment.
    pub fn run_until(&mut self, ms: i64) {
        loop {
            self.settle();
            if self.world.core.crashed.is_some() {
                self.crash();
            }
            let core = &mut self.world.core;
            if let Some(entry) = core.agenda.first_entry()
                && entry.key().0 <= core.now
            {
                let task = entry.remove();
                self.perform(task);
                continue;
            }
            if core.up {
                if self.plugin.is_some() && self.world.bridge.next_timer().is_some_and(|at| at <= core.unix_ms()) {
                    self.world.bridge.fire(core);
                    continue;
                }
                core.queue.flush(&mut core.pods, core.now);
                if core.queue.has_active() && core.busy_until <= core.now {
                    self.schedule_one();
                    continue;
                }
            }
            match self.next_event_time() {
                Some(next) if next <= ms => self.world.core.now = next,
                _ => break,
            }
        }
        self.world.core.now = self.world.core.now.max(ms);
    }

    /// The next moment at which anything happens; None: nothing ever will.
    #[must_use]
    pub fn next_event_time(&self) -> Option<i64> {
        let core = &self.world.core;
        let mut next: Vec<i64> = Vec::with_capacity(4);
        next.extend(core.agenda.first_key_value().map(|((at, ..), _)| *at));
        if core.up {
            if core.queue.has_active() {
                next.push(core.busy_until.max(core.now));
            }
            next.extend(core.queue.next_flush(core.now));
            if self.plugin.is_some() {
                next.extend(self.world.bridge.next_timer().map(|at| (at - core.config.start_unix_ms).max(core.now)));
            }
        }
        next.into_iter().min()
    }

    fn perform(&mut self, task: Task) {
        let core = &mut self.world.core;
        match task {
            Task::Act(Action::RestartScheduler(ms)) => {
                self.stop_scheduler("restart");
                let core = &mut self.world.core;
                core.plan(core.now + ms.max(0), 0, Task::StartScheduler);
            }
            Task::Act(action) => core.act(action),
            Task::ApiBack if !core.api_away() => core.note(What::ApiBack),
            Task::ApiBack => {}
            Task::StartScheduler => {
                if let Err(reason) = self.start_scheduler() {
                    self.world.core.crashed = Some(reason);
                }
            }
            Task::PermitTimeout(id) => self.permit_timeout(id),
            Task::Bind(id, node) => self.bind(id, node),
            Task::Run(id) => core.run(id),
            Task::Finish(id) => core.finish(id, "Succeeded"),
            Task::GraceEnds(id) => core.stopped(id),
        }
    }

    /// The scheduler's process ends; the API server keeps what it has.
    fn stop_scheduler(&mut self, reason: &str) {
        let core = &mut self.world.core;
        if core.up {
            core.note(What::SchedulerStopped { reason: reason.to_owned() });
        }
        core.up = false;
        core.notices.clear();
        core.signals.clear();
        core.waiting.clear();
        core.nominated.clear();
        core.agenda.retain(|_, task| !matches!(task, Task::PermitTimeout(_) | Task::Bind(..) | Task::StartScheduler));
        for i in 0..core.pods.len() {
            core.uncount(PodId(u32::try_from(i).unwrap_or(u32::MAX)));
        }
        for entry in &mut core.pods {
            entry.scheduling = Scheduling::default();
            if entry.info.pod.spec.node_name.is_empty() {
                entry.released_ms = None;
            }
        }
        self.plugin = None;
    }

    /// The guest ended the scheduler's process: it doesn't come back.
    fn crash(&mut self) {
        if self.world.core.up {
            let reason = self.world.core.crashed.clone().unwrap_or_default();
            self.stop_scheduler(&reason);
        }
    }

    fn start_scheduler(&mut self) -> Result<(), String> {
        let core = &mut self.world.core;
        core.up = true;
        core.busy_until = core.now;
        core.next_start = 0;
        let config = &core.config;
        core.queue = Queue::new(config, core.now);
        core.note(What::SchedulerStarted);
        let core = &mut self.world.core;
        self.world.bridge = Self::bridge(&core.config);
        core.notices.clear();
        // Informers list before they watch, in the order of the names.
        let nodes: Vec<_> = core
            .objects
            .iter()
            .filter(|(r, _)| r.kind == "Node" && r.group.is_empty())
            .filter_map(|(_, object)| serde_json::from_value(serde_json::Value::clone(object)).ok())
            .collect();
        for info in &mut core.nodes {
            info.set_node(None, &mut core.resources);
        }
        core.image_nodes.clear();
        for node in nodes {
            let node: crate::objects::Node = node;
            let name = node.metadata.name.clone();
            core.set_node(&name, Some(Rc::new(node)));
        }
        core.order.clear();
        core.selectors = Selectors::default();
        core.storage = Storage::default();
        for reference in core.objects.keys().cloned().collect::<Vec<_>>() {
            core.observe(&reference);
        }
        let ids: Vec<PodId> = core.by_key.values().copied().collect();
        if let Some(start) = self.start.clone() {
            self.plugin = Some(start()?);
            for id in &ids {
                let pod = informer::bridge_pod(&self.world.core, *id);
                self.world.bridge.pod_changed(&pod, &mut self.world.core);
            }
            let asked = if self.plugin.as_ref().is_some_and(|p| p.implements(kube_scheduler_abi::Export::Enqueue)) {
                self.call(|p, w| p.enqueue(w)).map_err(|status| status.reason)?
            } else {
                Vec::new()
            };
            self.world.core.queue.interests = Interests::of_guest(&asked);
        }
        let core = &mut self.world.core;
        for id in ids {
            let info = Rc::clone(&core.pod(id).info);
            core.pod_appeared(id, &info);
        }
        Ok(())
    }

    /// The clock, in virtual milliseconds since the start.
    #[must_use]
    pub fn now(&self) -> i64 {
        self.world.core.now
    }

    /// All that happened.
    #[must_use]
    pub fn trace(&self) -> &Trace {
        &self.world.core.trace
    }

    /// How things stand.
    #[must_use]
    pub fn state(&self) -> State<'_> {
        State::new(&self.world)
    }

    /// The plugin, while the scheduler runs: for its memory and fuel.
    #[must_use]
    pub fn plugin(&self) -> Option<&dyn Plugin> {
        self.plugin.as_deref()
    }
}
