//! Conversions between the types of `pd-verbs` and those of control messages.

use pd_protocol::control::{QueuePairEnd, RegionKey};
use pd_verbs::{Endpoint, EndpointError, RKey, RemoteRegion};

pub(crate) fn to_end(endpoint: &Endpoint) -> QueuePairEnd {
    QueuePairEnd {
        qp_num: endpoint.qp_num(),
        psn: endpoint.psn(),
        lid: endpoint.lid(),
        gid: endpoint.gid().into(),
        mtu: endpoint.mtu().bytes(),
    }
}

/// # Errors
/// The peer states what no device has.
pub(crate) fn to_endpoints(ends: &[QueuePairEnd]) -> Result<Vec<Endpoint>, EndpointError> {
    let ends = ends.iter();
    ends.map(|end| Endpoint::new(end.qp_num, end.psn, end.lid, end.gid, end.mtu))
        .collect()
}

pub(crate) fn to_key(region: RemoteRegion) -> RegionKey {
    RegionKey {
        addr: region.addr,
        len: region.len,
        rkey: region.rkey.0,
    }
}

pub(crate) fn to_region(key: RegionKey) -> RemoteRegion {
    RemoteRegion {
        addr: key.addr,
        len: key.len,
        rkey: RKey(key.rkey),
    }
}
