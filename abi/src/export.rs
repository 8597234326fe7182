//! What a guest may export (`scheduler/plugin/{guest,mask}.go`).

use crate::ValueType;

/// The memory every guest must export.
pub const MEMORY: &str = "memory";

macro_rules! exports {
    ($($(#[$doc:meta])* $variant:ident = $name:literal -> $result:expr;)*) => {
        /// A function the host calls. None takes a parameter.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Export { $($(#[$doc])* $variant,)* }

        impl Export {
            /// Every export, in the order of a pod's life.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The function's name in the module.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// Its result, checked by the host to the letter.
            #[must_use]
            pub const fn result(self) -> Option<ValueType> {
                match self { $(Self::$variant => $result),* }
            }
        }
    };
}

exports! {
    /// Which cluster events retry a rejected pod.
    Enqueue = "enqueue" -> None;
    /// Once a pod and cycle, before any node is looked at.
    PreFilter = "prefilter" -> Some(ValueType::I32);
    /// Preemption dry run and nominated pods: a pod joins a node.
    AddPod = "addpod" -> Some(ValueType::I32);
    /// Preemption dry run: a pod leaves a node.
    RemovePod = "removepod" -> Some(ValueType::I32);
    /// Per node: may the pod run there.
    Filter = "filter" -> Some(ValueType::I32);
    /// No node passed.
    PostFilter = "postfilter" -> Some(ValueType::I64);
    /// Before scoring, with the nodes that passed.
    PreScore = "prescore" -> Some(ValueType::I32);
    /// Per node: how good.
    Score = "score" -> Some(ValueType::I64);
    /// After scoring. The host gives the results back in map order, so the scores land on wrong nodes: don't.
    NormalizeScore = "normalizescore" -> Some(ValueType::I32);
    /// The pod is assumed on a node.
    Reserve = "reserve" -> Some(ValueType::I32);
    /// The place is given up.
    Unreserve = "unreserve" -> None;
    /// Last word of the scheduling cycle: pass, refuse or hold.
    Permit = "permit" -> Some(ValueType::I64);
    /// Before the binding.
    PreBind = "prebind" -> Some(ValueType::I32);
    /// The binding itself.
    Bind = "bind" -> Some(ValueType::I32);
    /// After the binding.
    PostBind = "postbind" -> None;
}

impl Export {
    /// The export with this name, if there is one.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|e| e.name() == name)
    }
}

/// A set of exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ExportSet(u16);

/// Why the host would not take a set, or why it would harm the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportSetError {
    /// Nothing the host calls is exported.
    Empty,
    /// One of a pair (reserve/unreserve, addpod/removepod): the host would call the missing half and crash.
    HalfPair {
        /// Exported.
        have: Export,
        /// Not exported.
        missing: Export,
    },
    /// Filter, score, reserve, permit and bind form a set that the host refuses at load.
    Refused {
        /// The nearest accepted set that has all of these.
        nearest: ExportSet,
    },
    /// Permit without reserve, unreserve, bind and postbind: the host never takes the pod's instance back.
    Leaks {
        /// The first that lacks.
        missing: Export,
    },
    /// Bind without permit: PreBind, Bind and PostBind take another pod's instance, or crash the scheduler.
    BindWithoutPermit,
    /// Filter without postfilter: the host answers Success for it, which switches preemption off.
    FilterWithoutPostFilter,
    /// normalizescore: the host gives the scores back in map order.
    NormalizeScore,
    /// An export that is only called along with another one that lacks.
    Uncalled {
        /// Exported.
        export: Export,
        /// Needed for it to be called.
        needs: Export,
    },
}

const CORE: [Export; 5] = [Export::Filter, Export::Score, Export::Reserve, Export::Permit, Export::Bind];

impl ExportSet {
    /// The set of these exports.
    #[must_use]
    pub const fn of(exports: &[Export]) -> Self {
        let mut set = Self(0);
        let mut i = 0;
        while i < exports.len() {
            set = set.with(exports[i]);
            i += 1;
        }
        set
    }

    /// This set and one more.
    #[must_use]
    pub const fn with(self, export: Export) -> Self {
        Self(self.0 | 1 << export as u8)
    }

    /// The union.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether the set has it.
    #[must_use]
    pub const fn has(self, export: Export) -> bool {
        self.0 & (1 << export as u8) != 0
    }

    /// How many.
    #[must_use]
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The exports, in [`Export::ALL`]'s order.
    pub fn iter(self) -> impl Iterator<Item = Export> {
        Export::ALL.iter().copied().filter(move |&e| self.has(e))
    }

    /// Whether the host loads a module with these exports: of the 31 ways to combine filter, score, reserve, permit and
    /// bind, 23 are taken, whatever stands beside them. Without any of the five, prefilter is taken if it is all there is.
    #[must_use]
    pub const fn accepted(self) -> bool {
        // The host counts reserve and unreserve as one.
        let reserve = self.has(Export::Reserve) || self.has(Export::Unreserve);
        let (f, s) = (self.has(Export::Filter), self.has(Export::Score));
        let (p, b) = (self.has(Export::Permit), self.has(Export::Bind));
        match (f, s, reserve, p, b) {
            // Reserve and permit together: with bind, alone or as all five.
            (_, _, true, true, false) => false,
            (f, s, true, true, true) => f == s,
            // Filter, reserve or permit, bind: only with score.
            (true, false, true, false, true) | (true, false, false, true, true) => false,
            (false, false, false, false, false) => self.0 == Self::of(&[Export::PreFilter]).0,
            _ => true,
        }
    }

    /// Whether the set is taken by the host and safe to run.
    ///
    /// # Errors
    /// The first fault found, those that crash the scheduler first.
    pub const fn check(self) -> Result<(), ExportSetError> {
        use Export as E;
        if self.is_empty() {
            return Err(ExportSetError::Empty);
        }
        let pairs = [(E::Reserve, E::Unreserve), (E::AddPod, E::RemovePod)];
        let mut i = 0;
        while i < pairs.len() {
            let (a, b) = pairs[i];
            if self.has(a) && !self.has(b) {
                return Err(ExportSetError::HalfPair { have: a, missing: b });
            }
            if self.has(b) && !self.has(a) {
                return Err(ExportSetError::HalfPair { have: b, missing: a });
            }
            i += 1;
        }
        if !self.accepted() {
            return Err(ExportSetError::Refused { nearest: self.nearest() });
        }
        if self.has(E::NormalizeScore) && self.has(E::Score) {
            return Err(ExportSetError::NormalizeScore);
        }
        if self.has(E::Permit) {
            let needed = [E::Reserve, E::Bind, E::PostBind];
            let mut i = 0;
            while i < needed.len() {
                if !self.has(needed[i]) {
                    return Err(ExportSetError::Leaks { missing: needed[i] });
                }
                i += 1;
            }
        } else if self.has(E::Bind) {
            return Err(ExportSetError::BindWithoutPermit);
        }
        if self.has(E::Filter) && !self.has(E::PostFilter) {
            return Err(ExportSetError::FilterWithoutPostFilter);
        }
        // Not addpod and removepod: they come with prefilter, which every plugin has.
        let coupled = [
            (E::PostFilter, E::Filter),
            (E::PreScore, E::Score),
            (E::NormalizeScore, E::Score),
            (E::PreBind, E::Bind),
            (E::PostBind, E::Bind),
        ];
        let mut i = 0;
        while i < coupled.len() {
            let (export, needs) = coupled[i];
            if self.has(export) && !self.has(needs) {
                return Err(ExportSetError::Uncalled { export, needs });
            }
            i += 1;
        }
        Ok(())
    }

    /// The smallest accepted set that contains this one.
    #[must_use]
    pub const fn nearest(self) -> Self {
        let mut best = Self::of(&CORE).with(Export::Unreserve).union(self);
        let mut bits: u32 = 0;
        while bits < 1 << CORE.len() {
            let mut set = self;
            let mut i = 0;
            while i < CORE.len() {
                if bits & (1 << i) != 0 {
                    set = set.with(CORE[i]);
                    if matches!(CORE[i], Export::Reserve) {
                        set = set.with(Export::Unreserve);
                    }
                }
                i += 1;
            }
            if set.accepted() && set.len() < best.len() {
                best = set;
            }
            bits += 1;
        }
        best
    }
}

impl core::fmt::Display for ExportSet {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        for (i, e) in self.iter().enumerate() {
            write!(f, "{}{}", if i == 0 { "" } else { ", " }, e.name())?;
        }
        Ok(())
    }
}

impl core::fmt::Display for ExportSetError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Empty => f.write_str("the module exports no function that the scheduler calls; export at least prefilter"),
            Self::HalfPair { have, missing } => write!(
                f,
                "the module exports {} without {}; the scheduler would call the missing one and crash: export both",
                have.name(),
                missing.name()
            ),
            Self::Refused { nearest } => write!(
                f,
                "the scheduler refuses this combination of filter, score, reserve, permit and bind; the nearest it takes is: {nearest}"
            ),
            Self::Leaks { missing } => write!(
                f,
                "permit without {} leaves a guest instance behind for every pod; export reserve, unreserve, bind and postbind with permit",
                missing.name()
            ),
            Self::BindWithoutPermit => {
                f.write_str("bind without permit runs on another pod's instance and can crash the scheduler; export permit too")
            }
            Self::FilterWithoutPostFilter => f.write_str(
                "filter without postfilter makes the scheduler take PostFilter for done, which switches preemption off; export postfilter and answer Unschedulable",
            ),
            Self::NormalizeScore => f.write_str(
                "normalizescore gives scores to the wrong nodes (the scheduler reads them back in map order); return 0 to 100 from score instead",
            ),
            Self::Uncalled { export, needs } => {
                write!(f, "{} is never called without {}; export both or neither", export.name(), needs.name())
            }
        }
    }
}

impl core::error::Error for ExportSetError {}
