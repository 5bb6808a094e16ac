//! Where a worker stands in its pool: part of its name.

use k8s_openapi::jiff::Timestamp;

/// Renamed pods of one slot have one name only where so many seconds lie between them, to the second.
const RENAMED_WITHIN_SECONDS: i64 = 1_000_000;

/// A place in a pool. On this machine a process that takes the place of another is its next incarnation. On a cluster the
/// incarnation is 1, and a name comes back once its pod is gone, but for a pod that must not have the name of one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Slot {
    pub(crate) ordinal: u32,
    pub(crate) incarnation: u32,
}

// === impl Slot ===

impl Slot {
    /// Where no process stood before, or on a cluster, where no pod stands now.
    pub(crate) fn first(ordinal: u32) -> Self {
        Self {
            ordinal,
            incarnation: 1,
        }
    }

    /// The same under a name that it has not had. Kueue knows the owners of a group's quota by their names: where all of
    /// them had come back, it would take the quota for that of pods that are gone, and delete the new ones.
    pub(crate) fn renamed(self, now: Timestamp) -> Self {
        let seconds = now.as_second().rem_euclid(RENAMED_WITHIN_SECONDS);
        Self {
            incarnation: 2 + u32::try_from(seconds).unwrap_or(0),
            ..self
        }
    }

    /// Reads a pod's name back; nothing if it is not one of `base`'s.
    pub(crate) fn of_pod(base: &str, name: &str) -> Option<Self> {
        let (ordinal, incarnation) = name
            .strip_prefix(base)?
            .strip_prefix('-')?
            .split_once('-')?;
        Some(Self {
            ordinal: ordinal.parse().ok()?,
            incarnation: incarnation.parse().ok()?,
        })
    }

    pub(crate) fn pod_name(self, base: &str) -> String {
        format!("{base}-{}-{}", self.ordinal, self.incarnation)
    }
}
