//! Exposes the KV pool to a `KvManager` and starts it.

use super::TransferEnd;
use crate::engine::{EngineInfo, StartError};
use crate::kvcache::group::{KvGroups, KvPoolShape, wire_dtype};
use pd_compute::Backend;
use pd_kv_transfer::{BootstrapAddr, KvArgs, KvManager, KvManagerConfig, MetadataBuffers};
use pd_kv_transfer::{MetadataIndexAllocator, TransferConfig, Waker};
use pd_protocol::Role;
use pd_protocol::layout::{KvLayout, PAGE_ORDER, ParallelLayout, RankId};
use pd_protocol::metadata::MetadataLayout;

/// The identity of this rank, in addition to the pool.
pub(crate) struct TransferStart<'a> {
    pub(crate) info: &'a EngineInfo,
    pub(crate) hidden_size: usize,
    pub(crate) transfer: TransferConfig,
    /// Prefill: ports of its bootstrap server and of its HTTP API.
    pub(crate) ports: Option<(u16, u16)>,
    pub(crate) waker: Waker,
}

/// SGLang has twice `max_running_requests` rows, on both sides. Source:
/// docs/sglang-protocol.md#metadata.
const METADATA_ROWS_PER_REQUEST: u32 = 2;

impl TransferEnd {
    /// # Errors
    /// When the pool cannot be exported, or the manager does not start.
    pub(crate) fn start<B: Backend>(
        backend: &B,
        kv: &KvGroups<B>,
        shape: KvPoolShape,
        start: TransferStart<'_>,
    ) -> Result<Self, StartError> {
        let wrong = |error: &dyn std::fmt::Display| StartError::Transfer(error.to_string());
        let info = start.info;
        let rows = info.max_running_requests * METADATA_ROWS_PER_REQUEST;
        let layout = MetadataLayout {
            hidden_size: u32::try_from(start.hidden_size).map_err(|error| wrong(&error))?,
            hidden_dtype: wire_dtype(backend.activation_dtype()).map_err(|error| wrong(&error))?,
        };
        let metadata = MetadataBuffers::allocate(layout, rows).map_err(|error| wrong(&error))?;
        let layout = KvLayout {
            order: PAGE_ORDER.to_owned(),
            page_size: info.page_size,
            pages: u32::try_from(shape.num_pages).map_err(|error| wrong(&error))?,
            groups: kv.describe().map_err(|error| wrong(&error))?,
            states: Vec::new(),
            metadata: layout,
            metadata_rows: rows,
        };
        let regions = kv.regions(backend).map_err(|error| wrong(&error))?;
        let host = start.transfer.host.to_string();
        let config = KvManagerConfig {
            role: if start.ports.is_some() {
                Role::Prefill
            } else {
                Role::Decode
            },
            rank: RankId::default(),
            parallel: ParallelLayout::SINGLE,
            kv: KvArgs {
                layout,
                kv: regions,
                states: Vec::new(),
                metadata: metadata.clone(),
            },
            kv_compat: info.kv_compat.clone(),
            boot_id: info.boot_id.clone(),
            bootstrap_addr: start.ports.map(|(port, _)| BootstrapAddr { host, port }),
            http_port: start.ports.map(|(_, port)| port),
            transfer: start.transfer,
            waker: start.waker,
        };
        let manager = KvManager::start(config).map_err(|error| wrong(&error))?;
        Ok(Self {
            manager,
            metadata,
            metadata_rows: MetadataIndexAllocator::new(rows),
        })
    }
}
