//! The timeline as one self-contained SVG: a strip of utilisation, a lane per node, a colour per gang.

use std::fmt::Write as _;

use super::colour;
use super::timeline::{State, Timeline, offsets, usage};
use crate::input::duration::Millis;

const WIDTH: i64 = 1200;
const LEFT: i64 = 132;
const RIGHT: i64 = 24;
const STRIP: i64 = 64;
const PLOT: i64 = WIDTH - LEFT - RIGHT;
/// Gangs that the legend names; more are summed up.
const LEGEND: usize = 60;

const STYLE: &str = "\
text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;fill:#24292f}\
.title{font-size:18px;font-weight:600}.sub{fill:#57606a}.node{font-size:11px;text-anchor:end}\
.tick{font-size:11px;fill:#57606a;text-anchor:middle}.bg{fill:#fff}.lane{fill:#f3f5f7}.grid{stroke:#d0d7de;stroke-width:1}\
.used{fill:#2da44e;fill-opacity:.75}.idle{fill:#d1242f;fill-opacity:.55}.cap{stroke:#57606a;stroke-dasharray:4 3}\
.plain{fill:#8c959f}.hatched{fill:url(#hatched)}.faint{fill:#fff;fill-opacity:.6}.end{stroke:#24292f}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.sub,.tick{fill:#9198a1}.bg{fill:#0d1117}.lane{fill:#171c23}\
.grid{stroke:#30363d}.cap,.end{stroke:#9198a1}}";

/// Draws the runs below each other on one time axis.
#[must_use]
pub fn svg(runs: &[Timeline]) -> String {
    let end = runs.iter().map(|r| r.end).max().unwrap_or(0).max(1);
    let mut body = String::new();
    let mut y = 0;
    for run in runs {
        y = draw(&mut body, run, y, end);
    }
    let height = y + 12;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n<style>{STYLE}</style>\n\
         <defs><pattern id=\"hatched\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" \
         patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" fill=\"#fff\" fill-opacity=\".35\"/>\
         <rect width=\"3\" height=\"6\" fill=\"#fff\" fill-opacity=\".55\"/></pattern></defs>\n\
         <rect class=\"bg\" width=\"{WIDTH}\" height=\"{height}\"/>\n{body}</svg>\n"
    )
}

/// Draws one run from `top` down and returns where it ends. Writing to a string can't fail, hence the ignored results.
fn draw(out: &mut String, run: &Timeline, top: i64, end: i64) -> i64 {
    let x = |time: i64| LEFT * 10 + time.clamp(0, end) * PLOT * 10 / end; // tenths of a pixel
    let capacity: i64 = run.lanes.iter().map(|l| l.capacity).sum::<i64>().max(1);
    let mut y = top + 34;
    let _ = writeln!(out, "<text class=\"title\" x=\"{LEFT}\" y=\"{y}\">{}</text>", escape(&run.title));
    y += 20;
    let _ = writeln!(out, "<text class=\"sub\" x=\"{LEFT}\" y=\"{y}\">{}</text>", escape(&run.subtitle));
    y += 16;

    // The strip: what is used, and on top of it what is taken but idle.
    let strip_top = y;
    let strip = |amount: i64| (STRIP * 10).saturating_mul(amount) / capacity;
    let _ = writeln!(out, "<rect class=\"lane\" x=\"{LEFT}\" y=\"{y}\" width=\"{PLOT}\" height=\"{STRIP}\"/>");
    let (mut used, mut idle) = (String::new(), String::new());
    let steps = usage(run);
    for (i, &(from, running, waiting)) in steps.iter().enumerate() {
        let to = steps.get(i + 1).map_or(run.end, |s| s.0);
        let (left, width) = (x(from), x(to) - x(from));
        if width <= 0 {
            continue;
        }
        let base = (y + STRIP) * 10 - strip(running);
        if running > 0 {
            let _ = write!(used, "M{} {}h{}v{}h-{}z", px(left), px(base), px(width), px(strip(running)), px(width));
        }
        if waiting > 0 {
            let height = strip(waiting);
            let _ = write!(idle, "M{} {}h{}v{}h-{}z", px(left), px(base - height), px(width), px(height), px(width));
        }
    }
    let _ = writeln!(out, "<path class=\"used\" d=\"{used}\"/>\n<path class=\"idle\" d=\"{idle}\"/>");
    let _ = writeln!(out, "<line class=\"cap\" x1=\"{LEFT}\" y1=\"{y}\" x2=\"{}\" y2=\"{y}\"/>", LEFT + PLOT);
    let label = LEFT - 8;
    let _ = writeln!(out, "<text class=\"node\" x=\"{label}\" y=\"{}\">100 %</text>", y + 4);
    let _ = writeln!(
        out,
        "<text class=\"node\" x=\"{label}\" y=\"{}\">{}</text>",
        y + STRIP / 2 + 4,
        escape(&run.resource)
    );
    let _ = writeln!(out, "<text class=\"node\" x=\"{label}\" y=\"{}\">0</text>", y + STRIP);
    y += STRIP + 10;

    // Lanes.
    let lanes = i64::try_from(run.lanes.len()).unwrap_or(i64::MAX).max(1);
    let pitch = (640 / lanes).clamp(4, 28); // a cluster of 160 nodes and more gets thin lanes
    let lane_height = if pitch >= 8 { pitch - 2 } else { pitch - 1 };
    let every = usize::try_from((14 + pitch - 1) / pitch).unwrap_or(1).max(1);
    for (i, lane) in run.lanes.iter().enumerate() {
        let lane_y = y + pitch * i64::try_from(i).unwrap_or(0);
        let _ = writeln!(
            out,
            "<rect class=\"lane\" x=\"{LEFT}\" y=\"{lane_y}\" width=\"{PLOT}\" height=\"{lane_height}\"/>"
        );
        if i % every == 0 {
            let baseline = lane_y + lane_height / 2 + 4;
            let _ = writeln!(
                out,
                "<text class=\"node\" x=\"{label}\" y=\"{baseline}\">{}</text>",
                escape(&clip(&lane.name, 18))
            );
        }
    }
    let lanes_height = pitch * lanes;
    grid(out, end, y, lanes_height);
    if run.end < end {
        // Another run of the drawing lasts longer.
        let at = px(x(run.end));
        let bottom = y + lanes_height;
        let _ = writeln!(out, "<line class=\"end\" x1=\"{at}\" y1=\"{strip_top}\" x2=\"{at}\" y2=\"{bottom}\"/>");
        let _ = writeln!(
            out,
            "<text class=\"sub\" x=\"{}\" y=\"{}\">ends at {}</text>",
            px(x(run.end) + 80),
            strip_top + STRIP / 2 + 4,
            Millis(run.end)
        );
    }
    for (bar, offset) in run.bars.iter().zip(offsets(run)) {
        let lane = &run.lanes[bar.lane];
        let full = lane.capacity.max(offset + bar.amount).max(1);
        let lane_y = (y + pitch * i64::try_from(bar.lane).unwrap_or(0)) * 10;
        let (low, high) = (lane_height * 10 * offset / full, lane_height * 10 * (offset + bar.amount) / full);
        // A hair of space between pods, where there is room for it.
        let gap = if high - low > 30 { 5 } else { 0 };
        let (left, right) = (x(bar.start), x(bar.end));
        let width = (right - left - gap).max(5);
        let rect = format!(
            "x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"",
            px(left),
            px(lane_y + low),
            px(width),
            px((high - low - gap).max(5))
        );
        let fill = bar.gang.map_or_else(|| "class=\"plain\"".to_owned(), |g| format!("fill=\"{}\"", colour::gang(g)));
        let gang = bar.gang.map_or("no gang", |g| run.gangs[g].as_str());
        let tip = format!(
            "{} ({gang}) on {}: {} from {} to {}",
            bar.pod,
            lane.name,
            bar.state.word(),
            Millis(bar.start),
            Millis(bar.end)
        );
        let _ = writeln!(out, "<g><title>{}</title><rect {fill} {rect}/>", escape(&tip));
        if let Some(class) = veil(bar.state) {
            let _ = writeln!(out, "<rect class=\"{class}\" {rect}/>");
        }
        let _ = writeln!(out, "</g>");
    }
    y += lanes_height + 18;
    axis(out, end, y);
    legend(out, run, y + 24)
}

/// What is laid over the gang's colour.
fn veil(state: State) -> Option<&'static str> {
    match state {
        State::Running => None,
        State::Idle => Some("hatched"),
        State::Held => Some("faint"),
    }
}

/// Vertical lines at round times.
fn grid(out: &mut String, end: i64, y: i64, height: i64) {
    for time in ticks(end) {
        let x = px(LEFT * 10 + time * PLOT * 10 / end);
        let _ = writeln!(out, "<line class=\"grid\" x1=\"{x}\" y1=\"{y}\" x2=\"{x}\" y2=\"{}\"/>", y + height);
    }
}

fn axis(out: &mut String, end: i64, y: i64) {
    for time in ticks(end) {
        let x = px(LEFT * 10 + time * PLOT * 10 / end);
        let _ = writeln!(out, "<text class=\"tick\" x=\"{x}\" y=\"{y}\">{}</text>", Millis(time));
    }
}

fn legend(out: &mut String, run: &Timeline, top: i64) -> i64 {
    let there = |state: State| run.bars.iter().any(|b| b.state == state);
    let mut entries: Vec<(String, String, Option<&str>)> = vec![
        ("working (above)".into(), "class=\"used\"".into(), None),
        ("taken but idle".into(), "class=\"idle\"".into(), None),
    ];
    for state in [State::Held, State::Idle].into_iter().filter(|state| there(*state)) {
        entries.push((state.word().to_owned(), "class=\"plain\"".into(), veil(state)));
    }
    if run.bars.iter().any(|b| b.gang.is_none()) {
        entries.push(("pods of no gang".into(), "class=\"plain\"".into(), None));
    }
    let named = run.gangs.iter().take(LEGEND).enumerate();
    entries.extend(named.map(|(i, g)| (clip(g, 24), format!("fill=\"{}\"", colour::gang(i)), None)));
    if run.gangs.len() > LEGEND {
        entries.push((format!("and {} more gangs", run.gangs.len() - LEGEND), "fill=\"none\"".into(), None));
    }
    let (mut x, mut y) = (LEFT, top);
    for (text, fill, veil) in entries {
        let width = 26 + 7 * i64::try_from(text.chars().count()).unwrap_or(0);
        if x + width > WIDTH - RIGHT {
            x = LEFT;
            y += 20;
        }
        let _ = writeln!(out, "<rect {fill} x=\"{x}\" y=\"{}\" width=\"12\" height=\"12\" rx=\"2\"/>", y - 10);
        if let Some(class) = veil {
            let y = y - 10;
            let _ = writeln!(out, "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"12\" height=\"12\" rx=\"2\"/>");
        }
        let _ = writeln!(out, "<text class=\"sub\" x=\"{}\" y=\"{y}\">{}</text>", x + 17, escape(&text));
        x += width;
    }
    y + 14
}

/// At most eleven round times from 0 to the end.
fn ticks(end: i64) -> impl Iterator<Item = i64> {
    const STEPS: [i64; 20] = [
        100, 200, 500, 1_000, 2_000, 5_000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000, 600_000, 900_000,
        1_800_000, 3_600_000, 7_200_000, 14_400_000, 43_200_000, 86_400_000,
    ];
    let step =
        STEPS.into_iter().find(|step| end / step <= 10).unwrap_or_else(|| (end / 10 / 86_400_000 + 1) * 86_400_000);
    (0..=end / step).map(move |i| i * step)
}

/// Tenths of a pixel as text.
fn px(tenths: i64) -> String {
    match tenths % 10 {
        0 => (tenths / 10).to_string(),
        rest => format!("{}.{}", tenths / 10, rest.abs()),
    }
}

fn clip(text: &str, chars: usize) -> String {
    if text.chars().count() <= chars {
        return text.to_owned();
    }
    text.chars().take(chars - 1).chain(['…']).collect()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::timeline::one_pod;
    use super::*;

    #[test]
    fn draws_what_there_is() {
        let text = svg(&[one_pod(State::Held)]);
        assert!(text.contains("a &lt; b") && text.contains("ga-0 (ga) on n1: held at Permit from 0s to 30s"));
        assert_eq!(text.matches("class=\"faint\"").count(), 2, "the bar and the legend");
        assert_eq!(text.matches("class=\"hatched\"").count(), 0);
        // Half of the plot is 522 pixels wide.
        assert!(text.contains("width=\"521.5\""), "{text}");
    }

    #[test]
    fn ticks_are_few_and_round() {
        for (end, count) in [(1, 1), (60_000, 7), (3_600_000, 7), (100_000_000, 7), (9_000_000_000, 10)] {
            assert_eq!(ticks(end).count(), count, "{end}");
        }
    }
}
