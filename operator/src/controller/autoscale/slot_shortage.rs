//! `SlotShortage`: whether workers lack slots of recurrent state while they have pages for KV. It is said once it has been
//! so for a minute, and until it has not been so for a minute: a status that followed each sample would be written each time.

use super::observations::Observations;
use super::per_role::ROLES;
use std::time::Duration;

/// How long samples must agree before the verdict changes: twelve of a cluster's.
const HOLDS_AFTER: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct SlotShortage {
    /// Nothing where no worker has such slots.
    lacks: Option<bool>,
    /// Since when samples say otherwise.
    differs_since: Option<Duration>,
}

// === impl SlotShortage ===

impl SlotShortage {
    /// Goes on from what a status says.
    pub(crate) fn of(lacks: Option<bool>) -> Self {
        Self {
            lacks,
            differs_since: None,
        }
    }

    /// Whether a worker lacks slots; nothing where none has any to lack.
    pub(crate) fn lacks(&self) -> Option<bool> {
        self.lacks
    }

    /// Takes in what workers report at a time on the clock of their samples. While none reports anything, what was known
    /// stays.
    pub(crate) fn observe(&mut self, observations: &Observations, now: Duration) {
        let gauges = ROLES.map(|role| observations.gauges(role, now));
        let gauges: Vec<_> = gauges.into_iter().flatten().collect();
        if gauges.is_empty() {
            return;
        }
        if gauges.iter().all(|gauges| gauges.slots.is_none()) {
            *self = Self::default();
            return;
        }
        let lacks = gauges.iter().any(|gauges| gauges.lacks_slots());
        if lacks == *self.lacks.get_or_insert(false) {
            self.differs_since = None;
            return;
        }
        let since = *self.differs_since.get_or_insert(now);
        if now.saturating_sub(since) >= HOLDS_AFTER {
            *self = Self::of(Some(lacks));
        }
    }
}
