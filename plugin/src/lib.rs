//! The gang plugin.
