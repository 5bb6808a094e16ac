//! Which address is chosen, and when the user must choose.

use super::*;

const ANY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

const TRIE: &str = "\
Main:
  +-- 0.0.0.0/0 3 0 5
     +-- 127.0.0.0/8 2 0 2
           |-- 127.0.0.1
              /32 host LOCAL
     |-- 10.0.0.0
        /24 link UNICAST
     |-- 10.0.0.5
        /32 host LOCAL
     |-- 10.0.0.255
        /32 link BROADCAST
Local:
     |-- 10.0.0.5
        /32 host LOCAL
";

#[test]
fn a_given_address_is_used() {
    let host = IpAddr::V4(Ipv4Addr::LOCALHOST);
    assert_eq!(own_address(host).unwrap(), host);
}

#[test]
fn own_addresses_are_read_without_loopback_networks_and_links() {
    let v4 = v4_addresses(TRIE);
    assert_eq!(v4, ["10.0.0.5".parse::<IpAddr>().unwrap()]);
    let v6 = v6_addresses(
        "fd000000000000000000000000000002 04 40 00 82     eth0\n\
         00000000000000000000000000000001 01 80 10 80       lo\n\
         fe8000000000000000fc00fffe000001 04 40 20 80     eth0\n",
    );
    assert_eq!(v6, ["fd00::2".parse::<IpAddr>().unwrap()]);
}

#[test]
fn a_single_address_is_used_and_several_are_refused() {
    let one = v4_addresses(TRIE);
    assert_eq!(only(ANY, &one).unwrap(), one[0]);
    let several = [one[0], "10.1.0.5".parse().unwrap()];
    let refused = only(ANY, &several).unwrap_err().to_string();
    assert!(
        refused.starts_with("--host 0.0.0.0: this machine has no default route"),
        "{refused}"
    );
    assert!(refused.contains("10.0.0.5, 10.1.0.5"), "{refused}");
    assert!(only(ANY, &[]).unwrap().is_loopback());
}
