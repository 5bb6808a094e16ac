//! Facts about addresses.

use super::*;

fn anywhere(_: SocketAddr) -> bool {
    true
}

#[test]
fn a_deployment_has_the_same_subnet_at_every_start_and_another_than_its_neighbour() {
    assert_eq!(Subnet::of("default", "tiny"), Subnet::of("default", "tiny"));
    assert_ne!(
        Subnet::of("default", "tiny"),
        Subnet::of("default", "other")
    );
    assert_ne!(Subnet::of("default", "tiny"), Subnet::of("test", "tiny"));
}

#[test]
fn pods_get_addresses_of_their_own_in_turn() {
    let mut subnet = Subnet {
        prefix: [127, 9, 8],
        next: 253,
    };
    let mut take = |in_use: &[IpAddr]| subnet.take(&[1], in_use, anywhere).unwrap().to_string();
    assert_eq!(take(&[]), "127.9.8.253");
    assert_eq!(take(&[]), "127.9.8.254");
    assert_eq!(take(&["127.9.8.1".parse().unwrap()]), "127.9.8.2");
}

#[test]
fn an_address_with_one_port_taken_is_passed_over() {
    let mut subnet = Subnet {
        prefix: [127, 9, 8],
        next: 1,
    };
    let taken: SocketAddr = "127.9.8.1:30900".parse().unwrap();
    let address = subnet
        .take(&[30000, 30900], &[], |address| address != taken)
        .unwrap();
    assert_eq!(address.to_string(), "127.9.8.2");
}

#[test]
fn a_full_subnet_says_what_to_do() {
    let mut subnet = Subnet {
        prefix: [127, 9, 8],
        next: 1,
    };
    let error = subnet
        .take(&[30000], &[], |_| false)
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "no address of 127.9.8.0/24 has ports [30000] free; stop what listens there, or give the \
         deployment another name"
    );
}

#[test]
fn a_port_that_something_listens_on_is_not_free() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    assert!(!is_free(listener.local_addr().unwrap()));
}
