//! Which port and GID are chosen.

use super::*;

fn mk_gid(index: u8, ip: &str, kind: GidKind) -> GidEntry {
    let gid = match ip.parse().expect("an address") {
        IpAddr::V4(v4) => Gid(v4.to_ipv6_mapped().octets()),
        IpAddr::V6(v6) => Gid(v6.octets()),
    };
    GidEntry {
        index,
        gid,
        kind,
        interface: Some("eth0".to_owned()),
    }
}

fn mk_port(number: u8, gids: Vec<GidEntry>) -> Port {
    Port {
        number,
        state: PortState::Active,
        link_layer: LinkLayer::Ethernet,
        active_mtu: Mtu::B4096,
        lid: 0,
        mbit_per_s: Some(100_000),
        message_bytes_max: 1 << 30,
        gids,
    }
}

/// A table as mlx5 fills it: each address twice, link-local first.
fn mk_roce_table() -> Vec<GidEntry> {
    use GidKind::{InfiniBandOrRoceV1 as V1, RoceV2 as V2};
    vec![
        mk_gid(0, "fe80::1", V1),
        mk_gid(1, "fe80::1", V2),
        mk_gid(2, "2001:db8::7", V1),
        mk_gid(3, "2001:db8::7", V2),
        mk_gid(4, "10.0.0.7", V1),
        mk_gid(5, "10.0.0.7", V2),
    ]
}

fn chosen(ports: &[Port], wish: PortWish) -> (u8, u8) {
    let local = choose_port(ports, &wish).expect("a choice");
    (local.number, local.gid_index)
}

#[test]
fn roce_v2_over_ipv4_is_chosen_first() {
    let ports = [mk_port(1, mk_roce_table())];
    assert_eq!(chosen(&ports, PortWish::default()), (1, 5));
}

#[test]
fn a_wished_family_is_kept_and_link_local_is_its_last_resort() {
    let wish = PortWish {
        family: Some(IpFamily::V6),
        ..PortWish::default()
    };
    let mut table = mk_roce_table();
    assert_eq!(chosen(&[mk_port(1, table.clone())], wish), (1, 3));
    table.retain(|entry| entry.index != 3);
    assert_eq!(chosen(&[mk_port(1, table)], wish), (1, 1));
}

#[test]
fn version_1_is_used_only_by_its_index() {
    let mut table = mk_roce_table();
    table.retain(|entry| entry.kind == GidKind::InfiniBandOrRoceV1);
    let ports = [mk_port(1, table)];
    let error = choose_port(&ports, &PortWish::default()).expect_err("no v2 GID");
    assert!(
        error.to_string().contains("no usable GID of RoCE v2"),
        "{error}"
    );
    let wish = PortWish {
        gid_index: Some(4),
        ..PortWish::default()
    };
    assert_eq!(chosen(&ports, wish), (1, 4));
}

#[test]
fn infiniband_uses_its_lid_and_first_gid() {
    let mut port = mk_port(1, vec![mk_gid(0, "fe80::5", GidKind::InfiniBandOrRoceV1)]);
    port.link_layer = LinkLayer::InfiniBand;
    port.lid = 42;
    let local = choose_port(&[port], &PortWish::default()).expect("a choice");
    assert_eq!((local.lid, local.gid_index), (42, 0));
}

#[test]
fn the_fastest_active_port_wins_then_the_lowest_number() {
    let mut ports = [1, 2, 3].map(|number| mk_port(number, mk_roce_table()));
    assert_eq!(chosen(&ports, PortWish::default()).0, 1);
    ports[2].mbit_per_s = Some(400_000);
    assert_eq!(chosen(&ports, PortWish::default()).0, 3);
    ports[2].state = PortState::Down;
    assert_eq!(chosen(&ports, PortWish::default()).0, 1);
    let wish = PortWish {
        port: Some(2),
        ..PortWish::default()
    };
    assert_eq!(chosen(&ports, wish).0, 2);
}

#[test]
fn a_refusal_says_what_there_is() {
    let mut port = mk_port(1, mk_roce_table());
    let refused = |port: &Port, wish| {
        let ports = std::slice::from_ref(port);
        choose_port(ports, &wish)
            .expect_err("no choice")
            .to_string()
    };
    let wish = PortWish {
        gid_index: Some(9),
        ..PortWish::default()
    };
    assert!(refused(&port, wish).contains("no GID at index 9; it has 0: fe80::1"));
    let wish = PortWish {
        port: Some(2),
        ..PortWish::default()
    };
    assert_eq!(refused(&port, wish), "port 2 is not one of the device's 1");
    port.state = PortState::Init;
    let text = refused(&port, PortWish::default());
    assert!(
        text.contains("port 1: Init") && text.contains("subnet manager"),
        "{text}"
    );
    port.state = PortState::Active;
    port.link_layer = LinkLayer::Other(7);
    assert!(refused(&port, PortWish::default()).contains("link layer 7"));
}
