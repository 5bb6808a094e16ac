//! What decode remembers of prefills that it is not registered with.

use super::bootstrap::mk_bootstrap;
use super::fixture::{Fixture, HOST, Worker, mk_layout, mk_transfer, next_boot};
use crate::config::{BootstrapAddr, TransportChoice};
use pd_protocol::{Role, Transport};
use std::sync::Arc;

#[test]
fn a_topology_that_no_room_registered_by_is_asked_for_again() {
    let transfer = || mk_transfer(TransportChoice::Only(Transport::Tcp));
    let start =
        |role, boot_id: &str, addr| Worker::start(role, boot_id, addr, &mk_layout(), transfer());
    let decode = start(Role::Decode, &next_boot(), None);
    let boot_id = next_boot();
    let bootstrap = mk_bootstrap(0, &boot_id);
    let addr = bootstrap.addr.clone();
    let prefill = start(Role::Prefill, &boot_id, Some(addr.clone()));
    // As the room does whose request ends before the answer comes.
    let nowhere = BootstrapAddr {
        host: HOST.to_string(),
        port: 1,
    };
    let side = Arc::clone(&decode.receiver(&nowhere, 7).side);
    let (client, asked) = (side.bootstrap.clone(), addr.clone());
    let question = async move { client.topology(&asked).await };
    let known = side.topologies.get(addr.clone(), question);
    side.shared.tasks.handle().block_on(known).unwrap();
    drop((prefill, bootstrap));

    let boot_id = next_boot();
    let bootstrap = mk_bootstrap(addr.port, &boot_id);
    let prefill = start(Role::Prefill, &boot_id, Some(addr));
    prefill.fill(2);
    let pair = Fixture {
        prefill,
        decode,
        bootstrap,
    };
    let (sender, receiver) = pair.open(8, &[3], 1);
    pair.send(&sender, &[6], 1, 1);
    pair.wait_end(&sender, &receiver);
    pair.assert_arrived(8, &[6], &[3], 1);
}
