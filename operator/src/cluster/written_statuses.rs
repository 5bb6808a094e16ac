//! The statuses that this process wrote last: what the watches report may be older. Decision 0029.

use super::version::resource_version;
use kube::{Resource, ResourceExt};
use pd_crds::{PdDeployment, PdDeploymentStatus, PdPool, PdPoolStatus};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A change is written this long after it was first seen, with other changes until then.
pub(super) const DEBOUNCE: Duration = Duration::from_millis(250);

/// Statuses of a deployment as this process last wrote them: what the watches reported may be older.
#[derive(Debug, Default)]
pub(crate) struct WrittenStatuses {
    /// With the resource version of the result.
    pub(super) deployment: Option<(u64, PdDeploymentStatus)>,
    pub(super) pools: HashMap<String, (u64, PdPoolStatus)>,
    /// Since when there is a change to write.
    pub(super) pending_since: Option<Instant>,
}

// === impl WrittenStatuses ===

impl WrittenStatuses {
    /// The deployment with its newest status.
    pub(crate) fn renew(&self, deployment: &mut Arc<PdDeployment>) {
        let newer = self.deployment.as_ref();
        let newer = newer.filter(|(version, _)| *version > resource_version(deployment.meta()));
        if let Some((_, status)) = newer {
            Arc::make_mut(deployment).status = Some(status.clone());
        }
    }

    /// Whether a pool's newest status is another one.
    pub(super) fn is_news(&self, stored: &PdPool, status: &PdPoolStatus) -> bool {
        let last = self.pools.get(&stored.name_any());
        let newer = last.filter(|(version, _)| *version > resource_version(stored.meta()));
        let newest = newer.map(|(_, status)| status).or(stored.status.as_ref());
        newest != Some(status)
    }

    /// How long to hold a change back; nothing once it is time.
    pub(super) fn debounce(&mut self, now: Instant) -> Option<Duration> {
        let since = *self.pending_since.get_or_insert(now);
        let left = DEBOUNCE.saturating_sub(now.duration_since(since));
        Some(left).filter(|left| !left.is_zero())
    }
}

#[cfg(test)]
mod tests;
