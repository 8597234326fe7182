use core::cell::Cell;
use core::ops::Deref;

use crate::api::{Node, NodeList, Pod};
use crate::wire::Message;

/// What fits most pods; a larger reply makes the host be asked again.
const INITIAL: usize = 2048;

/// Buffers kept for the next read: the call's pod, its node, one looked up on the side, and a reply of the bridge.
const SPARES: usize = 4;

thread_local! {
    // A Cell, not a RefCell: a trap in the middle must not leave a borrow behind, since the host goes on with the instance.
    static SPARE: Cell<Vec<Vec<u8>>> = const { Cell::new(Vec::new()) };
}

/// Bytes from the host, in a buffer that is used again when they are dropped.
#[derive(Debug, Default)]
pub struct HostBytes {
    buffer: Vec<u8>,
    len: usize,
}

impl HostBytes {
    /// Calls `read` with a buffer, again with a larger one if it answers that it needs more.
    pub(crate) fn read(mut read: impl FnMut(&mut [u8]) -> usize) -> Self {
        let mut spares = SPARE.take();
        let mut buffer = spares.pop().unwrap_or_default();
        SPARE.set(spares);
        if buffer.is_empty() {
            buffer = vec![0; INITIAL];
        }
        loop {
            let len = read(&mut buffer);
            if len <= buffer.len() {
                return Self { buffer, len };
            }
            // At least doubles, so this ends.
            buffer = vec![0; len.next_power_of_two()];
        }
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
        let mut spares = SPARE.take();
        if spares.len() < SPARES && !self.buffer.is_empty() {
            spares.push(core::mem::take(&mut self.buffer));
        }
        SPARE.set(spares);
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
