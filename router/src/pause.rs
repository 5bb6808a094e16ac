//! A pause of dispatching, such as for weights that are replaced: nothing new is sent, what is in flight ends, and requests wait in
//! the queue. It is a lease that ends by itself, so that requests outlive who asked for it.

use crate::clock::Instant;
use parking_lot::Mutex;
use std::time::Duration;

#[derive(Debug, Default)]
pub(crate) struct Pause {
    lease: Mutex<Option<Lease>>,
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    since: Instant,
    until: Instant,
}

// === impl Pause ===

impl Pause {
    /// Begins a lease, or renews the one that holds; `pauses` does what it says, before any end of it can. Returns
    /// whether it begins.
    pub(crate) fn hold(&self, lasts: Duration, pauses: impl FnOnce()) -> bool {
        let now = Instant::now();
        let mut lease = self.lease.lock();
        let begins = lease.is_none();
        let since = lease.map_or(now, |lease| lease.since);
        let until = now + lasts;
        *lease = Some(Lease { since, until });
        pauses();
        begins
    }

    /// Ends the lease that holds, if it `may`; `resumes` does what that says, before another can begin.
    pub(crate) fn end(&self, may: impl FnOnce(Instant) -> bool, resumes: impl FnOnce()) {
        let mut lease = self.lease.lock();
        if lease.is_some_and(|lease| may(lease.until)) {
            *lease = None;
            resumes();
        }
    }

    /// When the lease ends as things stand.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.lease.lock().map(|lease| lease.until)
    }

    /// How long it holds already.
    pub(crate) fn held(&self) -> Option<Duration> {
        self.lease.lock().map(|lease| lease.since.elapsed())
    }
}
