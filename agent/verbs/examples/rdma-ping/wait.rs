//! Waiting for a device and for the peer's address, with a deadline.

use anyhow::{Result, bail};
use pd_verbs::queue_pair::{Init, Rtr};
use pd_verbs::{Completion, CompletionQueue, Endpoint, PathOptions, QueuePair};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// Longer than any step here takes on an emulated machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);

/// Waits until one of the files is readable; whether that came before the deadline.
pub(crate) fn readable(files: &[BorrowedFd<'_>], deadline: Instant) -> Result<bool> {
    let mut polled: Vec<PollFd<'_>> = files
        .iter()
        .map(|file| PollFd::from_borrowed_fd(*file, PollFlags::IN))
        .collect();
    let left = deadline.saturating_duration_since(Instant::now());
    let left = Timespec::try_from(left)?;
    Ok(poll(&mut polled, Some(&left))? > 0)
}

/// The next completions, at least one.
pub(crate) fn completions(queue: &CompletionQueue, deadline: Instant) -> Result<Vec<Completion>> {
    let file = queue.events_file().expect("made with events");
    let mut found = Vec::new();
    loop {
        queue.arm()?;
        queue.poll(&mut found, 256)?;
        if !found.is_empty() {
            return Ok(found);
        }
        if !readable(&[file], deadline)? {
            bail!("no completion before the deadline");
        }
        queue.take_events()?;
    }
}

/// Ties an end to its peer, whose address the kernel looks for during a second: on a busy machine, it may take more.
pub(crate) fn connected(mut end: QueuePair<Init>, remote: &Endpoint) -> Result<QueuePair<Rtr>> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let unconnected = match end.connect(remote, PathOptions::default()) {
            Ok(end) => return Ok(end),
            Err(unconnected) => unconnected,
        };
        match unconnected.end {
            Some(same) if Instant::now() < deadline => {
                println!("again: {}", unconnected.error);
                end = *same;
            }
            _ => return Err(unconnected.error.into()),
        }
    }
}
