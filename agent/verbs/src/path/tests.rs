//! Paths between ends of each kind.

use super::*;
use std::net::Ipv6Addr;

fn mk_gid(ip: &str) -> Gid {
    ip.parse::<Ipv6Addr>().expect("an address").into()
}

fn mk_local(link_layer: LinkLayer, lid: u16, gid: &str) -> LocalPort {
    LocalPort {
        number: 2,
        link_layer,
        mtu: Mtu::B4096,
        lid,
        gid_index: 3,
        gid: mk_gid(gid),
        mbit_per_s: None,
        message_bytes_max: 1 << 30,
    }
}

fn mk_remote(lid: u16, gid: &str) -> Endpoint {
    Endpoint {
        qp_num: 9,
        psn: 1,
        lid,
        gid: mk_gid(gid),
        mtu: Mtu::B1024,
    }
}

#[test]
fn roce_goes_by_gid_with_its_traffic_class() {
    let local = mk_local(LinkLayer::Ethernet, 0, "::ffff:10.0.0.1");
    let options = PathOptions {
        traffic_class: 106,
        service_level: 3,
    };
    let path = address(&local, &mk_remote(0, "::ffff:10.0.0.2"), options).expect("a path");
    assert_eq!((path.is_global, path.port_num, path.sl), (1, 2, 3));
    assert_eq!((path.grh.sgid_index, path.grh.traffic_class), (3, 106));
    assert_eq!(Gid(path.grh.dgid.raw), mk_gid("::ffff:10.0.0.2"));
}

#[test]
fn infiniband_goes_by_lid_and_by_gid_only_between_subnets() {
    let local = mk_local(LinkLayer::InfiniBand, 4, "fe80::1");
    let path = |gid| address(&local, &mk_remote(7, gid), PathOptions::default()).expect("a path");
    assert_eq!((path("fe80::2").is_global, path("fe80::2").dlid), (0, 7));
    assert_eq!((path("fec0::2").is_global, path("fec0::2").dlid), (1, 7));
}

#[test]
fn ends_that_cannot_reach_each_other_are_refused() {
    let refused = |local: LocalPort, remote| {
        let path = address(&local, &remote, PathOptions::default());
        path.map(|_| ()).expect_err("no path")
    };
    let v4 = || mk_local(LinkLayer::Ethernet, 0, "::ffff:10.0.0.1");
    assert_eq!(refused(v4(), mk_remote(0, "::")), PathError::NoGid);
    let families = refused(v4(), mk_remote(0, "2001:db8::2")).to_string();
    assert!(families.contains("::ffff:10.0.0.1") && families.contains("2001:db8::2"));
    let ib = mk_local(LinkLayer::InfiniBand, 4, "fe80::1");
    assert_eq!(refused(ib, mk_remote(0, "fe80::2")), PathError::NoLid);
    let odd = mk_local(LinkLayer::Other(9), 0, "::1");
    assert_eq!(
        refused(odd, mk_remote(0, "::2")),
        PathError::LinkLayer { port: 2, code: 9 }
    );
}

#[test]
fn the_smaller_mtu_is_the_paths() {
    let local = mk_local(LinkLayer::Ethernet, 0, "::1");
    assert_eq!(path_mtu(&local, &mk_remote(0, "::2")), Mtu::B1024);
}

#[test]
fn a_silent_peer_is_given_up_within_this() {
    let retry = Retry {
        ack_timeout: 14,
        retries: 7,
        rnr_retries: 6,
    };
    assert_eq!(
        retry.gives_up_after(),
        Duration::from_nanos(4096 * 16384 * 4 * 8)
    );
    let absurd = Retry {
        ack_timeout: 255,
        ..retry
    };
    assert!(
        absurd.gives_up_after() > Duration::from_secs(60),
        "no overflow"
    );
}
