//! Messages of the bridge, generated from `proto/bridge/v1/bridge.proto`, which states what each call does.

/// Protocol version 1.
#[rustfmt::skip]
#[allow(missing_docs, clippy::all, rustdoc::invalid_html_tags, reason = "generated; the .proto holds the text")]
pub mod v1;

/// The version [`v1::Request::version`] carries.
pub const VERSION: u32 = 1;

/// First byte of a node name that is a request; no real node name can start with it.
pub const MARK: u8 = b'!';
