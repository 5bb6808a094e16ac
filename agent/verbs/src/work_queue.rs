//! Accounts of one work queue of a device: how many requests it holds, and which ones.
//!
//! 1. `push` admits a request, or declines when the device's queue might be full.
//! 2. The request is posted under its position; `take_back` undoes what the device refused.
//! 3. A completion names a position. Requests of a queue pair end in order, so `retire` frees that
//!    position and all before it, which had no completion of their own.
//!
//! Positions count requests modulo 2³². Those in `tail..head` belong to the device.

/// How much of a queue may be posted in a row without requesting a completion. With at most half of
/// it, the other half always returns by itself, regardless of what the caller signals.
const fn unsignalled_max(capacity: u32) -> u32 {
    capacity / 2
}

#[derive(Debug)]
pub(crate) struct WorkQueue {
    capacity: u32,
    head: u32,
    tail: u32,
    /// Requests at the head for which no completion was requested.
    unsignalled: u32,
    /// The caller's tag of each position, by its low bits.
    tags: Box<[u64]>,
}

/// A request that may be posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    pub(crate) position: u32,
    /// Whether to request its completion: the caller or the accounting needs it.
    pub(crate) signalled: bool,
}

// === impl WorkQueue ===

impl WorkQueue {
    /// Accounts of an empty queue.
    ///
    /// # Panics
    /// `capacity` is above 2³⁰; no device has such queues.
    pub(crate) fn new(capacity: u32) -> Self {
        assert!(capacity <= 1 << 30, "a queue of {capacity}");
        Self::starting_at(capacity, 0)
    }

    fn starting_at(capacity: u32, position: u32) -> Self {
        Self {
            capacity,
            head: position,
            tail: position,
            unsignalled: 0,
            tags: vec![0; capacity.next_power_of_two() as usize].into(),
        }
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Requests that the device holds.
    pub(crate) fn outstanding(&self) -> u32 {
        self.head.wrapping_sub(self.tail)
    }

    /// Requests that fit now.
    pub(crate) fn free(&self) -> u32 {
        self.capacity - self.outstanding()
    }

    fn tag_idx(&self, position: u32) -> usize {
        position as usize & (self.tags.len() - 1)
    }

    /// Reserves an entry for a request; `None` if the queue may be full.
    pub(crate) fn push(&mut self, tag: u64, signalled: bool) -> Option<Admitted> {
        if self.free() == 0 {
            return None;
        }
        let position = self.head;
        let signalled = signalled || self.unsignalled + 1 >= unsignalled_max(self.capacity).max(1);
        self.unsignalled = if signalled { 0 } else { self.unsignalled + 1 };
        let tag_idx = self.tag_idx(position);
        self.tags[tag_idx] = tag;
        self.head = position.wrapping_add(1);
        Some(Admitted {
            position,
            signalled,
        })
    }

    /// Returns the entries of the last `count` requests, which were not posted.
    ///
    /// # Panics
    /// The queue holds fewer.
    pub(crate) fn take_back(&mut self, count: u32) {
        assert!(
            count <= self.outstanding(),
            "only what was pushed is taken back"
        );
        if count == 0 {
            return;
        }
        self.head = self.head.wrapping_sub(count);
        // Which of the remaining ones were signalled is unknown; the next one will be.
        self.unsignalled = unsignalled_max(self.capacity);
    }

    /// Frees the request at `position` and those before it; returns its tag. `None` if the device
    /// does not hold such a request.
    pub(crate) fn retire(&mut self, position: u32) -> Option<u64> {
        let from_tail = position.wrapping_sub(self.tail);
        if from_tail >= self.outstanding() {
            return None;
        }
        self.tail = position.wrapping_add(1);
        Some(self.tags[self.tag_idx(position)])
    }
}

#[cfg(test)]
mod tests;
