//! What the exports call. The macro's expansion is the only user; everything with behaviour is here, where it is tested.
#![expect(missing_docs, reason = "one function per export, for the macro")]

use core::cell::OnceCell;
use std::sync::Once;

use kube_scheduler_abi::packing::{self, NominatingMode};
use kube_scheduler_abi::{Code, names};

use crate::context::{BindingContext, CycleContext, NodeContext, PostFilterContext, PreScoreContext, TargetContext};
use crate::*;

/// The plugin of an instance, made at its first call.
#[derive(Debug)]
pub struct Slot<P>(OnceCell<Result<P, Status>>);

impl<P> Slot<P> {
    #[expect(clippy::new_without_default, reason = "only the macro makes one, in a const")]
    pub const fn new() -> Self {
        Self(OnceCell::new())
    }
}

impl<P: Plugin> Slot<P> {
    fn get(&self) -> Result<&P, Status> {
        hook_panics();
        let made = self.0.get_or_init(|| {
            let made = P::new(&host::config());
            if let Err(status) = &made {
                klog::error(
                    "plugin refuses every pod until its configuration is right",
                    &[("reason", &status.reason())],
                );
            }
            made
        });
        made.as_ref().map_err(Clone::clone)
    }
}

/// A trap reaches the scheduler as one opaque line, so the panic is logged before it.
fn hook_panics() {
    static HOOK: Once = Once::new();
    if cfg!(target_family = "wasm") {
        HOOK.call_once(|| {
            std::panic::set_hook(Box::new(|info| {
                let message = info.payload_as_str().unwrap_or("(no message)");
                match info.location() {
                    Some(at) => klog::error("plugin panicked", &[("message", &message), ("at", at)]),
                    None => klog::error("plugin panicked", &[("message", &message)]),
                }
                // The extension drops it after a trap; a host that doesn't can show it on the pod.
                raw::result_status_reason(message.as_bytes());
            }));
        });
    }
}

/// Hands the reason to the host; the code goes back as the call's result.
fn refuse(status: &Status) -> i32 {
    if !status.reason().is_empty() {
        raw::result_status_reason(status.reason().as_bytes());
    }
    status.code() as i32
}

fn code(result: Result<(), Status>) -> i32 {
    result.map_or_else(|status| refuse(&status), |()| Code::Success as i32)
}

fn log_failure(point: &'static str, result: Result<(), Status>) {
    if let Err(status) = result {
        klog::error("plugin failed where it can't refuse the pod", &[("point", &point), ("status", &status)]);
    }
}

pub fn enqueue<P: EnqueueExtensions>(slot: &Slot<P>) {
    // An instance that can't be made refuses every pod at PreFilter; the host's default events will do for it.
    if let Ok(plugin) = slot.get() {
        let mut bytes = Vec::new();
        plugin.events_to_register().into_iter().for_each(|event| event.encode(&mut bytes));
        raw::result_cluster_events(&bytes);
    }
}

pub fn prefilter<P: PreFilterPlugin>(slot: &Slot<P>) -> i32 {
    let found =
        slot.get().and_then(|plugin| plugin.pre_filter(&CycleContext::default())).and_then(|found| match found {
            PreFilterResult::AllNodes => Ok(Code::Success),
            PreFilterResult::Skip => Ok(Code::Skip),
            PreFilterResult::Nodes(nodes) if nodes.is_empty() => {
                Err(Status::unresolvable("no node may run the pod, as its plugin sees it before filtering"))
            }
            PreFilterResult::Nodes(nodes) => {
                let mut list = Vec::new();
                for node in nodes {
                    names::push(&mut list, &node)
                        .map_err(|e| Status::error(format!("PreFilter named the node \"{node}\": {e}")))?;
                }
                raw::result_node_names(&list);
                Ok(Code::Success)
            }
        });
    found.map_or_else(|status| refuse(&status), |code| code as i32)
}

/// The prefilter of a plugin that has none: it is exported all the same, so that a plugin that can't be made refuses
/// the pod once instead of node by node. `Skip` spares the Filter calls where there is no Filter either.
pub fn prefilter_default<P: Plugin>(slot: &Slot<P>, otherwise: Code) -> i32 {
    slot.get().map_or_else(|status| refuse(&status), |_| otherwise as i32)
}

pub fn addpod<P: PreFilterExtensions>(slot: &Slot<P>) -> i32 {
    code(slot.get().and_then(|plugin| plugin.add_pod(&TargetContext::default())))
}

pub fn removepod<P: PreFilterExtensions>(slot: &Slot<P>) -> i32 {
    code(slot.get().and_then(|plugin| plugin.remove_pod(&TargetContext::default())))
}

pub fn filter<P: FilterPlugin>(slot: &Slot<P>) -> i32 {
    code(slot.get().and_then(|plugin| plugin.filter(&NodeContext::default())))
}

pub fn postfilter<P: PostFilterPlugin>(slot: &Slot<P>) -> u64 {
    let (mode, code) = match slot.get().and_then(|plugin| plugin.post_filter(&PostFilterContext::default())) {
        Ok(PostFilterResult::Nominate(node)) if node.is_empty() => {
            (NominatingMode::Noop, refuse(&Status::error("PostFilter nominated a node without a name")))
        }
        Ok(PostFilterResult::Nominate(node)) => {
            raw::result_nominated_node_name(node.as_bytes());
            (NominatingMode::Override, Code::Success as i32)
        }
        Ok(PostFilterResult::ClearNomination(status)) => (NominatingMode::Override, refuse(&status)),
        Ok(PostFilterResult::Done) => (NominatingMode::Noop, Code::Success as i32),
        Err(status) => (NominatingMode::Noop, refuse(&status)),
    };
    packing::value(mode as i32, code)
}

/// The postfilter of a plugin that has none: without it the host answers Success, which switches preemption off.
pub fn postfilter_default() -> u64 {
    packing::value(NominatingMode::Noop as i32, Code::Unschedulable as i32)
}

pub fn prescore<P: PreScorePlugin>(slot: &Slot<P>) -> i32 {
    match slot.get().and_then(|plugin| plugin.pre_score(&PreScoreContext::default())) {
        Ok(PreScoreResult::Score) => Code::Success as i32,
        Ok(PreScoreResult::Skip) => Code::Skip as i32,
        Err(status) => refuse(&status),
    }
}

pub fn score<P: ScorePlugin>(slot: &Slot<P>) -> u64 {
    let score = slot.get().and_then(|plugin| plugin.score(&NodeContext::default())).and_then(|score| match score {
        MIN_NODE_SCORE..=MAX_NODE_SCORE => Ok(score as i32),
        _ => {
            Err(Status::error(format!("Score answered {score}, which is not in {MIN_NODE_SCORE} to {MAX_NODE_SCORE}")))
        }
    });
    match score {
        Ok(score) => packing::value(score, Code::Success as i32),
        Err(status) => packing::value(0, refuse(&status)),
    }
}

pub fn reserve<P: ReservePlugin>(slot: &Slot<P>) -> i32 {
    code(slot.get().and_then(|plugin| plugin.reserve(&NodeContext::default())))
}

pub fn unreserve<P: ReservePlugin>(slot: &Slot<P>) {
    log_failure("Unreserve", slot.get().and_then(|plugin| plugin.unreserve(&BindingContext::default())));
}

pub fn permit<P: PermitPlugin>(slot: &Slot<P>) -> u64 {
    match slot.get().and_then(|plugin| plugin.permit(&NodeContext::default())) {
        Ok(PermitResult::Allow) => packing::permit(Code::Success as i32, 0),
        Ok(PermitResult::Wait(timeout)) => {
            // A wait of nothing would expire at once and a fraction of a millisecond is cut off, so: one at least.
            let ms = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX).max(1);
            packing::permit(Code::Wait as i32, ms)
        }
        Err(status) => packing::permit(refuse(&status), 0),
    }
}

pub fn prebind<P: PreBindPlugin>(slot: &Slot<P>) -> i32 {
    code(slot.get().and_then(|plugin| plugin.pre_bind(&BindingContext::default())))
}

pub fn bind<P: BindPlugin>(slot: &Slot<P>) -> i32 {
    match slot.get().and_then(|plugin| plugin.bind(&BindingContext::default())) {
        Ok(BindResult::Bound) => Code::Success as i32,
        Ok(BindResult::Skip) => Code::Skip as i32,
        Err(status) => refuse(&status),
    }
}

pub fn postbind<P: PostBindPlugin>(slot: &Slot<P>) {
    log_failure("PostBind", slot.get().and_then(|plugin| plugin.post_bind(&BindingContext::default())));
}
