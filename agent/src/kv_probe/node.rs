//! One manager with its pool, and a wait for the states of its rooms.

use super::pool::Pool;
use super::wire::KV_COMPAT;
use anyhow::Result;
use pd_kv_transfer::{BootstrapAddr, KvManager, KvManagerConfig, TransferConfig};
use pd_protocol::Role;
use pd_protocol::layout::{ParallelLayout, RankId};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// A room whose peer does not appear fails after this: until then it costs no computation.
const PEER_TIMEOUT: Duration = Duration::from_secs(15);

pub(super) struct Node {
    pub(super) manager: KvManager,
    pub(super) pool: Pool,
    /// Counts the manager's wakes.
    wakes: watch::Receiver<u64>,
}

/// Draws a name for a process of a probe.
pub(super) fn draw_boot_id() -> String {
    format!("kv-probe-{:016x}", rand::random::<u64>())
}

// === impl Node ===

impl Node {
    /// # Errors
    /// The manager does not start.
    pub(super) fn start(
        role: Role,
        pool: Pool,
        boot_id: &str,
        bootstrap_addr: Option<BootstrapAddr>,
        transfer: TransferConfig,
    ) -> Result<Self> {
        let (wakes_tx, wakes) = watch::channel(0);
        let manager = KvManager::start(KvManagerConfig {
            role,
            rank: RankId::default(),
            parallel: ParallelLayout::SINGLE,
            kv: pool.kv.clone(),
            kv_compat: KV_COMPAT.to_owned(),
            boot_id: boot_id.to_owned(),
            bootstrap_addr,
            http_port: None,
            transfer: TransferConfig {
                bootstrap_timeout: PEER_TIMEOUT,
                waiting_timeout: PEER_TIMEOUT,
                ..transfer
            },
            waker: Arc::new(move || wakes_tx.send_modify(|wakes| *wakes += 1)),
        })?;
        Ok(Self {
            manager,
            pool,
            wakes,
        })
    }

    /// Waits, woken only by the manager, until `reached` holds; every phase of a room is bounded.
    pub(super) async fn until(&self, reached: impl Fn() -> bool) {
        let mut wakes = self.wakes.clone();
        while !reached() {
            wakes
                .changed()
                .await
                .expect("the manager, and its waker, live as long as the node");
        }
    }
}
