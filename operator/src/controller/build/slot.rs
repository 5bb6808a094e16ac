//! Where a worker stands in its pool: part of its name.

/// A place in a pool. A pod that takes the place of another is its next incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Slot {
    pub(crate) ordinal: u32,
    pub(crate) incarnation: u32,
}

// === impl Slot ===

impl Slot {
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
