//! The way of the KV, from the flags that serving and the probe of a fabric share.

use crate::args::{TransferArgs, TransferBackendName};
use pd_kv_transfer::{RdmaConfig, TransferConfig, Transport};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

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
            | TransferBackendName::Ascend => Transport::Auto,
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

/// The address that peers dial: the one listened on, or, where that is any, the one this machine
/// reaches the world from; loopback where it reaches none.
pub(crate) fn own_address(host: IpAddr) -> IpAddr {
    if !host.is_unspecified() {
        return host;
    }
    // 192.0.2.1 is reserved for documentation, so it is routed as the world is and nobody is there.
    let world = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 9));
    address_towards(world).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

/// The address that this machine reaches `peer` from.
///
/// # Errors
/// No way leads there.
pub(crate) fn address_towards(peer: SocketAddr) -> io::Result<IpAddr> {
    let any: SocketAddr = match peer {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    // A UDP socket that is connected chooses its address and sends nothing.
    let socket = UdpSocket::bind(any)?;
    socket.connect(peer)?;
    Ok(socket.local_addr()?.ip())
}
