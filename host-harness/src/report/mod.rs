//! What came of a run, for people: tables, a timeline as SVG, a trace for Perfetto.

mod chrome;
mod colour;
mod summary;
mod svg;
mod timeline;

pub use chrome::chrome_trace;
pub use summary::{GangSummary, PendingPod, Summary, Usage, comparison};
pub use svg::svg;
pub use timeline::{Bar, Lane, State, Timeline};
