//! Where a worker stands in its pool: part of its name.

/// A place in a pool. On this machine a process that takes the place of another is its next incarnation. On a cluster the
/// incarnation is always 1: a name comes back once its pod is gone.
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
