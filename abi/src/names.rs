//! NUL-*terminated* string lists: node names of PreFilter, key/values of klog.
//!
//! The host drops an entry without its NUL, and skips empty entries. An empty list of node names means "all nodes".

use alloc::vec::Vec;

/// Appends one entry and its NUL.
///
/// # Errors
/// The entry holds a NUL or is empty, so the host would read it as something else.
pub fn push(list: &mut Vec<u8>, entry: &str) -> Result<(), BadEntry> {
    if entry.is_empty() || entry.as_bytes().contains(&0) {
        return Err(BadEntry);
    }
    list.extend_from_slice(entry.as_bytes());
    list.push(0);
    Ok(())
}

/// Reads a list as the host does.
pub fn iter(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let terminated = list.iter().rposition(|&b| b == 0).map_or(&list[..0], |end| &list[..end]);
    terminated.split(|&b| b == 0).filter(|e| !e.is_empty())
}

/// An entry that can't be in a NUL-terminated list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadEntry;

impl core::fmt::Display for BadEntry {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("a list entry is empty or holds a NUL byte")
    }
}

impl core::error::Error for BadEntry {}
