//! The way of the KV, from the flags that serving and the probe of a fabric share.

use crate::args::{TransferArgs, TransferBackendName};
use pd_kv_transfer::{RdmaConfig, TransferConfig, Transport};
use std::net::IpAddr;

/// Peers dial `host`.
pub(crate) fn build(args: &TransferArgs, host: IpAddr) -> TransferConfig {
    let name = args.transfer_backend;
    if name.is_foreign() {
        let name = name.as_str();
        tracing::info!(
            "--disaggregation-transfer-backend {name} means auto here: shm, rdma or tcp"
        );
    }
    TransferConfig {
        transport: match name {
            TransferBackendName::Shm => Transport::Shm,
            TransferBackendName::Rdma => Transport::Rdma,
            TransferBackendName::Tcp => Transport::Tcp,
            TransferBackendName::Fake => Transport::Fake,
            TransferBackendName::Auto
            | TransferBackendName::Mooncake
            | TransferBackendName::Nixl
            | TransferBackendName::Mori
            | TransferBackendName::Ascend
            | TransferBackendName::MooncakeTcp
            | TransferBackendName::Nccl
            | TransferBackendName::Gloo => Transport::Auto,
        },
        rdma: RdmaConfig {
            devices: args.ib_device.clone(),
            gid_index: args.ib_gid_index,
            traffic_class: args.ib_traffic_class,
            lanes: args.ib_queue_pairs.into(),
            in_flight_bytes: u64::from(args.ib_max_in_flight) << 20,
            gather_max: usize::from(args.ib_max_sge),
            ..RdmaConfig::default()
        },
        shm_dir: args.shm_dir.clone(),
        ..TransferConfig::new(host)
    }
}
