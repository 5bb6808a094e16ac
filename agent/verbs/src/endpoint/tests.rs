//! The wire form of an endpoint, and which endpoints are refused.

use super::*;
use proptest::prelude::*;
use std::net::Ipv4Addr;

fn mk_endpoint() -> Endpoint {
    Endpoint {
        qp_num: 17,
        psn: 0x00ab_cdef,
        lid: 0,
        gid: Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped().into(),
        mtu: Mtu::B4096,
    }
}

#[test]
fn the_wire_form_is_this() {
    let json = serde_json::to_string(&mk_endpoint()).expect("plain fields");
    let wire = r#"{"qp_num":17,"psn":11259375,"lid":0,"gid":"::ffff:10.0.0.1","mtu":4096}"#;
    assert_eq!(json, wire);
}

proptest! {
    #[test]
    fn an_endpoint_survives_the_wire(
        qp_num in 0..=BITS_24,
        random: u32,
        lid: u16,
        gid: [u8; 16],
        mtu in prop::sample::select(Mtu::ALL.to_vec()),
    ) {
        let sent = Endpoint { qp_num, psn: psn(random), lid, gid: Gid(gid), mtu };
        let wire = serde_json::to_vec(&sent).expect("plain fields");
        let received: Endpoint = serde_json::from_slice(&wire).expect("what was sent");
        prop_assert_eq!(received, sent);
    }
}

#[test]
fn impossible_endpoints_are_refused_with_a_reason() {
    let sent = serde_json::to_value(mk_endpoint()).expect("plain fields");
    let refused = |field: &str, value: u64| {
        let mut spoilt = sent.clone();
        spoilt[field] = value.into();
        let read = serde_json::from_value::<Endpoint>(spoilt);
        read.expect_err("it is refused").to_string()
    };
    assert_eq!(
        refused("qp_num", 1 << 24),
        "qp_num 16777216 does not fit into 24 bits"
    );
    assert_eq!(
        refused("psn", 1 << 24),
        "psn 16777216 does not fit into 24 bits"
    );
    assert!(refused("mtu", 1500).contains("not 1500"));
    assert!(refused("lid", 1 << 16).contains("u16"));
}

#[test]
fn an_mtu_is_its_code_and_its_bytes() {
    for (mtu, code, bytes) in [
        (Mtu::B256, 1, 256),
        (Mtu::B1024, 3, 1024),
        (Mtu::B4096, 5, 4096),
    ] {
        assert_eq!((mtu.code(), mtu.bytes()), (code, bytes));
        assert_eq!(Mtu::from_code(code), Some(mtu));
    }
    assert_eq!(Mtu::from_code(6), None);
}
