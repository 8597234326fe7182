use core::fmt;
use std::borrow::Cow;

use kube_scheduler_abi::Code;

/// Why a pod does not go on: a code and a reason for the pod's condition.
///
/// Going on is `Ok`, so there is no status for it; holding and skipping are results of the extension points that know
/// them ([`crate::PermitResult::Wait`], [`crate::PreFilterResult::Skip`], …).
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Status {
    code: Code,
    reason: Cow<'static, str>,
}

impl Status {
    /// Code Error: an internal fault. The pod is retried with backoff.
    pub fn error(reason: impl Into<Cow<'static, str>>) -> Self {
        Self { code: Code::Error, reason: reason.into() }
    }

    /// Code Unschedulable: not now; preempting other pods may help.
    pub fn unschedulable(reason: impl Into<Cow<'static, str>>) -> Self {
        Self { code: Code::Unschedulable, reason: reason.into() }
    }

    /// Code `UnschedulableAndUnresolvable`: not now, and preempting other pods can't help.
    pub fn unresolvable(reason: impl Into<Cow<'static, str>>) -> Self {
        Self { code: Code::UnschedulableAndUnresolvable, reason: reason.into() }
    }

    /// Code Pending: not now, and the event that the plugin registered retries the pod without backoff. For Filter,
    /// Reserve and Permit; the scheduler makes an Error of it elsewhere.
    pub fn pending(reason: impl Into<Cow<'static, str>>) -> Self {
        Self { code: Code::Pending, reason: reason.into() }
    }

    /// The code.
    #[must_use]
    pub const fn code(&self) -> Code {
        self.code
    }

    /// The reason.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// The same with more about where it came from: `what: reason`.
    pub fn context(self, what: impl fmt::Display) -> Self {
        Self { code: self.code, reason: format!("{what}: {}", self.reason).into() }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.name(), self.reason)
    }
}

impl core::error::Error for Status {}

impl From<crate::wire::Malformed> for Status {
    fn from(e: crate::wire::Malformed) -> Self {
        Self::error(e.to_string())
    }
}

impl From<crate::ParseQuantityError> for Status {
    fn from(e: crate::ParseQuantityError) -> Self {
        Self::error(e.to_string())
    }
}
