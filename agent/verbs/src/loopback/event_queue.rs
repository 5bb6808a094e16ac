//! Events for a caller, with a file that is readable while there are any.

use super::fabric::{self, Fabric};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::{Errno, read, write};
use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

/// Written and read only under the fabric's lock, so its count is 1 or 0 and no call on it blocks.
struct EventFile(OwnedFd);

pub(super) struct EventQueue<T> {
    file: Arc<EventFile>,
    events: VecDeque<T>,
    /// The device is gone: after the last event comes an error.
    is_closed: bool,
}

// === impl EventFile ===

impl EventFile {
    fn raise(&self) {
        write(&self.0, &1_u64.to_ne_bytes()).expect("a count of 0 can grow");
    }

    fn lower(&self) {
        read(&self.0, &mut [0_u8; 8]).expect("a count of 1 can be taken");
    }

    fn wait(&self) -> Result<(), Errno> {
        let mut files = [PollFd::new(&self.0, PollFlags::IN)];
        poll(&mut files, None).map(|_| ())
    }

    fn is_non_blocking(&self) -> bool {
        let flags = fcntl_getfl(&self.0).expect("an open file has flags");
        flags.contains(OFlags::NONBLOCK)
    }
}

// === impl EventQueue ===

impl<T> EventQueue<T> {
    pub(super) fn new() -> Result<Self, Errno> {
        let file = eventfd(0, EventfdFlags::CLOEXEC)?;
        Ok(Self {
            file: Arc::new(EventFile(file)),
            events: VecDeque::new(),
            is_closed: false,
        })
    }

    pub(super) fn raw_fd(&self) -> RawFd {
        self.file.0.as_raw_fd()
    }

    fn is_readable(&self) -> bool {
        self.is_closed || !self.events.is_empty()
    }

    pub(super) fn push(&mut self, event: T) {
        if !self.is_readable() {
            self.file.raise();
        }
        self.events.push_back(event);
    }

    /// From now on the file stays readable, so that waiters learn that there will be no more
    /// events.
    pub(super) fn close(&mut self) {
        if !self.is_readable() {
            self.file.raise();
        }
        self.is_closed = true;
    }

    pub(super) fn retain(&mut self, keeps: impl Fn(&T) -> bool) {
        let was_readable = self.is_readable();
        self.events.retain(keeps);
        if was_readable && !self.is_readable() {
            self.file.lower();
        }
    }

    fn pop(&mut self) -> Option<T> {
        let event = self.events.pop_front()?;
        if !self.is_readable() {
            self.file.lower();
        }
        Some(event)
    }
}

/// The next event of the queue that `queue` finds, recorded by `taken` under the same lock. Waits
/// for it if the caller made the file blocking.
pub(super) fn take<T>(
    mut queue: impl FnMut(&mut Fabric) -> &mut EventQueue<T>,
    taken: impl FnOnce(&mut Fabric, &T),
) -> Result<T, Errno> {
    loop {
        let mut fabric = fabric::lock();
        let queue = queue(&mut fabric);
        if let Some(event) = queue.pop() {
            taken(&mut fabric, &event);
            return Ok(event);
        }
        if queue.is_closed {
            return Err(Errno::NODEV);
        }
        if queue.file.is_non_blocking() {
            return Err(Errno::AGAIN);
        }
        let file = Arc::clone(&queue.file);
        drop(fabric);
        file.wait()?;
    }
}
