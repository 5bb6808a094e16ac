//! Exposes the KV pool to a `KvManager` and starts it.

use super::TransferEnd;
use crate::info::EngineInfo;
use crate::kvcache::group::RankMemory;
use pd_kv_transfer::{
    BootstrapAddr, KvArgs, KvManager, KvManagerConfig, MetadataBuffers, MetadataIndexAllocator,
    RegionError, StartError, TransferConfig, Waker,
};
use pd_protocol::Role;
use pd_protocol::layout::{KvLayout, PAGE_ORDER, ParallelLayout, RankId};
use pd_protocol::metadata::MetadataLayout;
use std::num::TryFromIntError;

/// The identity of this rank, and its pool.
pub(crate) struct TransferStart<'a> {
    pub(crate) info: &'a EngineInfo,
    pub(crate) memory: RankMemory,
    pub(crate) hidden_size: usize,
    pub(crate) transfer: TransferConfig,
    /// Prefill: ports of its bootstrap server and of its HTTP API.
    pub(crate) ports: Option<(u16, u16)>,
    pub(crate) waker: Waker,
}

/// Why the KV transfer did not start.
#[derive(Debug, thiserror::Error)]
pub enum TransferStartError {
    #[error("a size of the KV pool is too large: {0}")]
    Size(#[from] TryFromIntError),
    #[error("memory of the metadata rows: {0}")]
    Metadata(#[source] RegionError),
    #[error(transparent)]
    Manager(#[from] StartError),
}

/// SGLang has twice `max_running_requests` rows, on both sides. Source:
/// docs/sglang-protocol.md#metadata.
const METADATA_ROWS_PER_REQUEST: u32 = 2;

impl TransferEnd {
    /// # Errors
    /// When there is no memory for the metadata rows, or the manager does not start.
    pub(crate) fn start(start: TransferStart<'_>) -> Result<Self, TransferStartError> {
        let TransferStart {
            info,
            memory,
            hidden_size,
            transfer,
            ports,
            waker,
        } = start;
        let rows = info.max_running_requests * METADATA_ROWS_PER_REQUEST;
        let layout = MetadataLayout {
            hidden_size: u32::try_from(hidden_size)?,
            hidden_dtype: memory.activations,
        };
        let metadata =
            MetadataBuffers::allocate(layout, rows).map_err(TransferStartError::Metadata)?;
        let layout = KvLayout {
            order: PAGE_ORDER.to_owned(),
            page_size: info.page_size,
            pages: u32::try_from(memory.num_pages)?,
            groups: memory.groups,
            states: memory.states,
            metadata: layout,
            metadata_rows: rows,
        };
        let states = layout.states.iter().map(|state| state.state_type);
        let states = states.collect();
        let host = transfer.host.to_string();
        let manager = KvManager::start(KvManagerConfig {
            role: if ports.is_some() {
                Role::Prefill
            } else {
                Role::Decode
            },
            rank: RankId::default(),
            parallel: ParallelLayout::SINGLE,
            kv: KvArgs {
                layout,
                kv: memory.regions,
                states: memory.state_regions,
                metadata: metadata.clone(),
            },
            kv_compat: info.kv_compat.clone(),
            boot_id: info.boot_id.clone(),
            bootstrap_addr: ports.map(|(port, _)| BootstrapAddr { host, port }),
            http_port: ports.map(|(_, port)| port),
            transfer,
            waker,
        })?;
        Ok(Self {
            manager,
            metadata,
            metadata_rows: MetadataIndexAllocator::new(rows),
            states,
        })
    }
}
