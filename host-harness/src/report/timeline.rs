//! Which pod took which part of which node, and when: the model that all drawings share.

/// One run, ready to draw. Amounts are of one resource, in its base unit (milli for cpu, else whole).
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// Says which run it is.
    pub title: String,
    /// One line of figures below the title.
    pub subtitle: String,
    /// The resource that the lanes show.
    pub resource: String,
    /// End of the run in milliseconds.
    pub end: i64,
    /// The nodes, in the order to show.
    pub lanes: Vec<Lane>,
    /// The gangs, in the order to show; [`Bar::gang`] points here.
    pub gangs: Vec<String>,
    /// What the pods took.
    pub bars: Vec<Bar>,
}

/// A node.
#[derive(Clone, Debug)]
pub struct Lane {
    /// Its name.
    pub name: String,
    /// What it has of the resource.
    pub capacity: i64,
}

/// A pod on a node, in one state.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Index into [`Timeline::lanes`].
    pub lane: usize,
    /// Index into [`Timeline::gangs`]; `None` for a pod of no gang.
    pub gang: Option<usize>,
    /// Namespace and name.
    pub pod: String,
    /// From, in milliseconds.
    pub start: i64,
    /// To, in milliseconds.
    pub end: i64,
    /// How much it took.
    pub amount: i64,
    /// Doing what.
    pub state: State,
}

/// What a pod does with the room it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Held at Permit: room taken, nothing started.
    Held,
    /// Has its node, but its gang isn't whole.
    Idle,
    /// Works.
    Running,
}

impl State {
    /// A word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Held => "held at Permit",
            Self::Idle => "bound, gang incomplete",
            Self::Running => "running",
        }
    }
}

/// The amount in use over time: from each time on, running and not running.
pub(super) fn usage(timeline: &Timeline) -> Vec<(i64, i64, i64)> {
    let mut changes: Vec<(i64, i64, i64)> = Vec::with_capacity(timeline.bars.len() * 2);
    for bar in &timeline.bars {
        let (running, idle) = if bar.state == State::Running { (bar.amount, 0) } else { (0, bar.amount) };
        changes.push((bar.start, running, idle));
        changes.push((bar.end, -running, -idle));
    }
    changes.sort_unstable();
    let mut steps: Vec<(i64, i64, i64)> = vec![(0, 0, 0)];
    for (time, running, idle) in changes {
        let (last, r, i) = steps[steps.len() - 1];
        let next = (time, r + running, i + idle);
        if time == last {
            steps.pop();
        }
        steps.push(next);
    }
    steps
}

/// For each bar the offset within its lane, so that bars of the same time don't overlap: the lowest that is free.
/// Bars of one pod that follow each other keep their place.
pub(super) fn offsets(timeline: &Timeline) -> Vec<i64> {
    let mut order: Vec<usize> = (0..timeline.bars.len()).collect();
    order.sort_by_key(|&i| (timeline.bars[i].lane, timeline.bars[i].start, i));
    let mut offsets = vec![0; timeline.bars.len()];
    let mut live: Vec<usize> = Vec::new();
    let mut lane = usize::MAX;
    for i in order {
        let bar = &timeline.bars[i];
        if bar.lane != lane {
            live.clear();
            lane = bar.lane;
        }
        let kept = live.iter().find(|&&j| timeline.bars[j].pod == bar.pod && timeline.bars[j].end == bar.start);
        let kept = kept.map(|&j| offsets[j]);
        live.retain(|&j| timeline.bars[j].end > bar.start);
        let offset = kept.unwrap_or_else(|| {
            let mut taken: Vec<(i64, i64)> =
                live.iter().map(|&j| (offsets[j], offsets[j] + timeline.bars[j].amount)).collect();
            taken.sort_unstable();
            taken.iter().fold(0, |at, &(from, to)| if at + bar.amount <= from { at } else { at.max(to) })
        });
        offsets[i] = offset;
        live.push(i);
    }
    offsets
}

/// A run of one pod on one node, for tests of drawings: half of its four cores, from 0 to 30 s of 60.
#[cfg(test)]
pub(super) fn one_pod(state: State) -> Timeline {
    let bar = Bar { lane: 0, gang: Some(0), pod: "ga-0".into(), start: 0, end: 30_000, amount: 2, state };
    Timeline {
        title: "a < b".into(),
        subtitle: String::new(),
        resource: "cpu".into(),
        end: 60_000,
        lanes: vec![Lane { name: "n1".into(), capacity: 4 }],
        gangs: vec!["ga".into()],
        bars: vec![bar],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(pod: &str, start: i64, end: i64, amount: i64, state: State) -> Bar {
        Bar { lane: 0, gang: None, pod: pod.into(), start, end, amount, state }
    }

    #[test]
    fn bars_of_one_time_do_not_overlap() {
        let timeline = Timeline {
            bars: vec![
                bar("a", 0, 10, 2, State::Held),
                bar("b", 5, 20, 1, State::Running),
                bar("a", 10, 15, 2, State::Running),
                bar("c", 16, 20, 2, State::Running),
            ],
            ..Timeline::default()
        };
        assert_eq!(offsets(&timeline), [0, 2, 0, 0]);
        assert_eq!(usage(&timeline), [(0, 0, 2), (5, 1, 2), (10, 3, 0), (15, 1, 0), (16, 3, 0), (20, 0, 0)]);
    }
}
