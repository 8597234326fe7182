use core::cell::Cell;
use core::ops::Deref;

use crate::api::{Node, NodeList, Pod};
use crate::wire::Message;

/// What fits most pods; a larger reply makes the host be asked again.
const INITIAL: usize = 2048;

/// Buffers kept: a call reads a pod, a node and a name, and another pod where there is a target.
const KEPT: usize = 4;

thread_local! {
    // Buffers for the next reads. A Cell, not a RefCell: a trap in the middle must not leave
    // a borrow behind, since the host goes on with the instance.
    static SPARE: Cell<Vec<Vec<u8>>> = const { Cell::new(Vec::new()) };
}

/// Bytes from the host, in a buffer that is used again when they are dropped.
#[derive(Debug, Default)]
pub struct HostBytes {
    buffer: Vec<u8>,
    len: usize,
}

impl HostBytes {
    /// Calls one of the host's reading functions, again with a larger buffer if it answers that it needs more.
    // A copy per function would be some 3 KiB of a small plugin.
    #[inline(never)]
    pub(crate) fn read(function: fn(&[u8], &mut [u8]) -> usize, key: &[u8]) -> Self {
        let mut bytes = Self::spare(INITIAL);
        loop {
            bytes.len = function(key, &mut bytes.buffer);
            if bytes.len <= bytes.buffer.len() {
                return bytes;
            }
            // At least doubles, so this ends.
            bytes.buffer = vec![0; bytes.len.max(2 * bytes.buffer.len())];
        }
    }

    /// A buffer of at least this size, of whatever content.
    pub(crate) fn spare(size: usize) -> Self {
        let mut spare = SPARE.take();
        let mut buffer = spare.pop().unwrap_or_default();
        SPARE.set(spare);
        if buffer.len() < size {
            buffer = vec![0; size];
        }
        Self { len: buffer.len(), buffer }
    }

    /// The whole buffer, to write into.
    pub(crate) fn buffer_mut(&mut self) -> &mut [u8] {
        &mut self.buffer
    }

    /// Cuts off what follows.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

impl Deref for HostBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer[..self.len]
    }
}

impl Drop for HostBytes {
    fn drop(&mut self) {
        let mut spare = SPARE.take();
        if spare.len() < KEPT {
            spare.push(core::mem::take(&mut self.buffer));
        }
        SPARE.set(spare);
    }
}

macro_rules! owned {
    ($($(#[$meta:meta])* $name:ident = $message:ident;)*) => {$(
        $(#[$meta])*
        #[derive(Debug)]
        pub struct $name(HostBytes);

        impl $name {
            pub(crate) const fn new(bytes: HostBytes) -> Self {
                Self(bytes)
            }

            /// Its reader.
            #[must_use]
            pub fn get(&self) -> $message<'_> {
                $message::from_bytes(&self.0)
            }
        }
    )*};
}

owned! {
    /// A pod together with its bytes.
    PodBuf = Pod;
    /// A node together with its bytes.
    NodeBuf = Node;
    /// A list of nodes together with its bytes.
    NodeListBuf = NodeList;
}
