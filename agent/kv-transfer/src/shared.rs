//! What every part of a manager shares: configuration, own regions, NICs and tasks.

use crate::config::KvManagerConfig;
use crate::failure::FailureReason;
use crate::fault_injection::FaultInjection;
use crate::log_limit::LogLimit;
use crate::memory::Region;
use crate::plan::End;
use crate::tasks::Tasks;
use crate::transport::rdma::fabric::Fabric;
use std::sync::Arc;

/// See the module's header.
pub(crate) struct Shared {
    pub(crate) config: KvManagerConfig,
    /// KV cuts, then states, then the metadata rows: the numbering of plans.
    pub(crate) regions: Vec<Region>,
    /// NICs, where rdma is wanted and there are any.
    pub(crate) fabric: Option<Arc<Fabric>>,
    pub(crate) tasks: Tasks,
    pub(crate) fault_injection: FaultInjection,
    /// Of lines about what strangers send.
    pub(crate) log: LogLimit,
}

// === impl Shared ===

impl Shared {
    /// This rank, as one side of a pair.
    pub(crate) fn end(&self) -> End<'_> {
        End {
            layout: &self.config.kv.layout,
            parallel: &self.config.parallel,
            rank: self.config.rank,
        }
    }

    /// Why every room fails now, if this manager has failed.
    pub(crate) fn failure(&self) -> Option<FailureReason> {
        let reason = self.tasks.failure().reason()?;
        Some(FailureReason::device(&*reason))
    }
}
