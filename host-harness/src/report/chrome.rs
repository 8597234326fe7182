//! The timeline in the Trace Event Format, which Perfetto and `chrome://tracing` open.

use serde_json::{Value as Json, json};

use super::timeline::{Timeline, offsets, usage};

/// Processes are nodes, threads are the room in them; a last process counts what is used. Times are microseconds.
#[must_use]
pub fn chrome_trace(runs: &[Timeline]) -> String {
    let mut events = Vec::new();
    let mut pid = 0;
    for run in runs {
        let first = pid;
        for (i, lane) in run.lanes.iter().enumerate() {
            pid = first + i + 1;
            events.push(name("process_name", pid, 0, &format!("{} {}", run.title, lane.name)));
        }
        let mut bars: Vec<_> = run.bars.iter().zip(offsets(run)).collect();
        bars.sort_by_key(|(bar, offset)| (bar.lane, bar.start, *offset));
        for (bar, offset) in bars {
            let gang = bar.gang.map_or("", |g| run.gangs[g].as_str());
            events.push(json!({
                "name": bar.pod, "cat": if gang.is_empty() { "pod" } else { gang }, "ph": "X",
                "ts": bar.start * 1000, "dur": (bar.end - bar.start) * 1000, "pid": first + bar.lane + 1, "tid": offset,
                "args": {"gang": gang, "state": bar.state.word(), run.resource.as_str(): bar.amount},
            }));
        }
        pid = first + run.lanes.len() + 1;
        events.push(name("process_name", pid, 0, &format!("{} {}", run.title, run.resource)));
        for (time, running, idle) in usage(run) {
            events.push(json!({
                "name": run.resource, "ph": "C", "ts": time * 1000, "pid": pid, "tid": 0,
                "args": {"running": running, "taken but idle": idle},
            }));
        }
    }
    let trace: Json = json!({"displayTimeUnit": "ms", "traceEvents": events});
    trace.to_string() + "\n"
}

fn name(what: &str, pid: usize, tid: i64, name: &str) -> Json {
    json!({"name": what, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}})
}

#[cfg(test)]
mod tests {
    use super::super::timeline::{State, one_pod};
    use super::*;

    #[test]
    fn is_json_with_complete_events() {
        let run = one_pod(State::Running);
        let trace: Json = serde_json::from_str(&chrome_trace(&[run])).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let bar = events.iter().find(|e| e["ph"] == "X").unwrap();
        assert_eq!(
            (bar["ts"].as_i64(), bar["dur"].as_i64(), bar["pid"].as_i64()),
            (Some(0), Some(30_000_000), Some(1))
        );
        assert_eq!(events.iter().filter(|e| e["ph"] == "C").count(), 2);
    }
}
