//! What happened, in order: as a hash, by which two runs of a seed are compared, and as lines where it is replayed.

use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

#[derive(Debug, Default)]
pub(crate) struct Trace {
    hasher: DefaultHasher,
    entries: u64,
    prints: bool,
}

// === impl Trace ===

impl Trace {
    pub(crate) fn new(prints: bool) -> Self {
        Self {
            prints,
            ..Self::default()
        }
    }

    pub(crate) fn note(&mut self, now: Duration, entry: &(impl Debug + Hash)) {
        self.entries += 1;
        now.hash(&mut self.hasher);
        entry.hash(&mut self.hasher);
        if self.prints {
            eprintln!("{:>12.6} {entry:?}", now.as_secs_f64());
        }
    }

    /// Of all entries, and their number.
    pub(crate) fn hash(&self) -> (u64, u64) {
        (self.hasher.finish(), self.entries)
    }
}
