//! Status codes, as the framework's `Code` (`pkg/scheduler/framework/interface.go`).

/// What an extension point answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(i32)]
pub enum Code {
    /// Go on.
    Success = 0,
    /// An internal fault; the pod is retried with backoff.
    Error = 1,
    /// The pod can't be placed now; preemption may help.
    Unschedulable = 2,
    /// The pod can't be placed now and preemption can't help.
    UnschedulableAndUnresolvable = 3,
    /// Permit only: hold the pod.
    Wait = 4,
    /// PreFilter, PreScore, Bind: this plugin has nothing to do for the pod.
    Skip = 5,
    /// Reserve, Permit, Filter: unschedulable, and its wake-up event skips the backoff.
    Pending = 6,
}

impl Code {
    /// Every code, in numeric order.
    pub const ALL: [Self; 7] = [
        Self::Success,
        Self::Error,
        Self::Unschedulable,
        Self::UnschedulableAndUnresolvable,
        Self::Wait,
        Self::Skip,
        Self::Pending,
    ];

    /// The code with this number, if there is one.
    #[must_use]
    pub const fn from_i32(value: i32) -> Option<Self> {
        if value >= 0 && (value as usize) < Self::ALL.len() { Some(Self::ALL[value as usize]) } else { None }
    }

    /// The name the framework prints.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Success => "Success",
            Self::Error => "Error",
            Self::Unschedulable => "Unschedulable",
            Self::UnschedulableAndUnresolvable => "UnschedulableAndUnresolvable",
            Self::Wait => "Wait",
            Self::Skip => "Skip",
            Self::Pending => "Pending",
        }
    }
}
