//! A run in figures: per gang, and of the whole cluster.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;

use super::timeline::{Timeline, usage};
use crate::input::duration::Millis;

/// What came of a run.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Which scheduler ran.
    pub scheduler: String,
    /// Seed of the run.
    pub seed: u64,
    /// When nothing more happened, or the run was cut.
    pub end_ms: i64,
    /// Groups of pods, by namespace and name.
    pub gangs: Vec<GangSummary>,
    /// Pods of no group that never got a node.
    pub pending_pods: Vec<PendingPod>,
    /// Room of the most contended resource.
    pub usage: Usage,
    /// No collective job could progress any more and none of those left was whole.
    pub deadlocked: bool,
    /// Expectations of a scenario that did not hold: file, line and what was found.
    pub failures: Vec<String>,
}

/// One gang.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GangSummary {
    /// Its namespace and name.
    pub gang: String,
    /// Pods that exist.
    pub pods: usize,
    /// Of these, with a node and not ended.
    pub bound: usize,
    /// Held at Permit.
    pub held: usize,
    /// Ended with success.
    pub succeeded: usize,
    /// Ended without.
    pub failed: usize,
    /// When its first pod came.
    pub came_ms: i64,
    /// When its first pod got a node.
    pub started_ms: Option<i64>,
    /// When the last of its pods ended, if all have.
    pub done_ms: Option<i64>,
    /// Scheduling cycles spent on it.
    pub attempts: usize,
    /// Why those that wait wait.
    pub reason: String,
    /// What some of them are told besides, each text once.
    pub other_reasons: Vec<PendingPod>,
}

/// A pod that waits, and why.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingPod {
    /// Its namespace and name.
    pub pod: String,
    /// Why it waits.
    pub reason: String,
}

/// Use of a resource over the run. Shares are parts of 1, of the capacity and of the time until the last pod ended.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// The resource.
    pub resource: String,
    /// Capacity of the cluster, in the resource's unit (milli for cpu).
    pub capacity: i64,
    /// Largest share that worked at once.
    pub peak: f64,
    /// Mean share that worked.
    pub mean: f64,
    /// Mean share that was taken but didn't work: held, or bound in a gang that wasn't whole.
    pub idle: f64,
    /// The same as a part of all that was taken.
    pub wasted: f64,
}

impl Usage {
    /// Of a timeline, until the last bar ends.
    #[must_use]
    pub fn of(timeline: &Timeline) -> Self {
        let capacity: i64 = timeline.lanes.iter().map(|l| l.capacity).sum();
        let steps = usage(timeline);
        let end = timeline.bars.iter().map(|b| b.end).max().unwrap_or(0);
        let (mut worked, mut idle, mut peak) = (0.0, 0.0, 0);
        for (i, &(from, running, waiting)) in steps.iter().enumerate() {
            let to = steps.get(i + 1).map_or(end, |s| s.0);
            let span = ms(to - from);
            worked += ms(running) * span;
            idle += ms(waiting) * span;
            if to > from {
                peak = peak.max(running);
            }
        }
        let share = |amount: f64, of: f64| if of > 0.0 { amount / of } else { 0.0 };
        let room = ms(capacity) * ms(end);
        Self {
            resource: timeline.resource.clone(),
            capacity,
            peak: share(ms(peak), ms(capacity)),
            mean: share(worked, room),
            idle: share(idle, room),
            wasted: share(idle, worked + idle),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "shares are shown with three digits")]
fn ms(n: i64) -> f64 {
    n as f64
}

impl Summary {
    /// When the last gang was done, if all are.
    #[must_use]
    pub fn completed(&self) -> Option<Millis> {
        self.gangs.iter().map(|g| g.done_ms).collect::<Option<Vec<_>>>()?.into_iter().max().map(Millis)
    }

    /// The gangs as a table.
    #[must_use]
    pub fn table(&self) -> String {
        let mut table = plain();
        table.set_header(["GANG", "PODS", "STATE", "CAME", "STARTED", "DONE", "ATTEMPTS", "WHY"]);
        let time = |t: Option<i64>| t.map_or("-".to_owned(), |t| Millis(t).to_string());
        for gang in &self.gangs {
            table.add_row([
                gang.gang.clone(),
                gang.pods.to_string(),
                gang.state(),
                Millis(gang.came_ms).to_string(),
                time(gang.started_ms),
                time(gang.done_ms),
                gang.attempts.to_string(),
                gang.reason.clone(),
            ]);
        }
        for pod in &self.pending_pods {
            table.add_row([&pod.pod, "1", "pending", "", "-", "-", "", &pod.reason]);
        }
        format!("{table}\n")
    }

    /// The figures of the cluster on one line.
    #[must_use]
    pub fn line(&self) -> String {
        let Usage { resource, peak, mean, wasted, .. } = &self.usage;
        let done = match (self.completed(), self.deadlocked) {
            (Some(t), _) if !self.gangs.is_empty() => format!("all gangs done after {t}, "),
            (_, true) => format!("deadlocked at {}, ", Millis(self.end_ms)),
            _ => String::new(),
        };
        format!(
            "{done}{resource}: peak {:.0} %, mean {:.0} %, taken but idle {:.0} %",
            peak * 100.0,
            mean * 100.0,
            wasted * 100.0
        )
    }
}

impl GangSummary {
    fn state(&self) -> String {
        let mut parts = Vec::new();
        for (count, word) in
            [(self.bound, "bound"), (self.held, "held"), (self.succeeded, "succeeded"), (self.failed, "failed")]
        {
            match count {
                0 => {}
                n if n == self.pods => return word.to_owned(),
                n => parts.push(format!("{n} {word}")),
            }
        }
        if parts.is_empty() { "pending".to_owned() } else { parts.join(", ") }
    }
}

/// Several runs of two schedulers, side by side: means over the seeds.
#[must_use]
pub fn comparison(left: &[Summary], right: &[Summary]) -> String {
    let mut table = plain();
    let title = |runs: &[Summary]| runs.first().map_or(String::new(), |r| r.scheduler.clone());
    table.set_header([String::new(), title(left), title(right)]);
    for column in 1..3 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let rows: [(&str, fn(&[Summary]) -> String); 7] = [
        ("runs", |r| r.len().to_string()),
        ("deadlocked", |r| percent(mean(r, |s| f64::from(u8::from(s.deadlocked))))),
        ("all gangs done after, mean of runs that end", |r| {
            let done: Vec<_> = r.iter().filter_map(Summary::completed).collect();
            match i64::try_from(done.len()) {
                Ok(n) if n > 0 => Millis(done.iter().map(|t| t.0).sum::<i64>() / n / 1000 * 1000).to_string(),
                _ => "-".to_owned(),
            }
        }),
        ("gangs done, mean", |r| {
            percent(mean(r, |s| {
                let done = s.gangs.iter().filter(|g| g.done_ms.is_some()).count();
                ms(i64::try_from(done).unwrap_or(0)) / ms(i64::try_from(s.gangs.len().max(1)).unwrap_or(1))
            }))
        }),
        ("peak utilisation, mean", |r| percent(mean(r, |s| s.usage.peak))),
        ("mean utilisation", |r| percent(mean(r, |s| s.usage.mean))),
        ("taken but idle, of all that was taken", |r| percent(mean(r, |s| s.usage.wasted))),
    ];
    for (name, figure) in rows {
        table.add_row([name.to_owned(), figure(left), figure(right)]);
    }
    format!("{table}\n")
}

fn mean(runs: &[Summary], figure: impl Fn(&Summary) -> f64) -> f64 {
    let n = i64::try_from(runs.len().max(1)).unwrap_or(1);
    runs.iter().map(figure).sum::<f64>() / ms(n)
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn plain() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table
}
