//! KV transfer settings, from the flags that serving and the KV probe share.

use crate::args::TransferArgs;
use pd_identity::Peers;
use pd_kv_transfer::{RdmaConfig, TransferConfig};
use std::net::IpAddr;

/// Peers dial `host`.
pub(crate) fn build(args: &TransferArgs, host: IpAddr, peers: &Peers) -> TransferConfig {
    let backend = args.transfer_backend;
    if backend.is_foreign() {
        tracing::info!(
            "--disaggregation-transfer-backend {} is handled as auto: shm, rdma or tcp",
            backend.name
        );
    }
    TransferConfig {
        transport: backend.choice(),
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
        peers: peers.clone(),
        tcp_encryption: !args.tcp_plaintext,
        ..TransferConfig::new(host)
    }
}
