//! Facts about the choice of a transport.

use super::*;
use crate::tests::fixture::mk_layout;
use pd_protocol::RankId;
use pd_protocol::Transport;
use pd_protocol::control::{SessionId, ShmOffer};
use std::future::{Ready, ready};

/// The answer of a prefill on another host.
fn mk_ack(shm: bool, rdma: bool, tcp: bool) -> RegisterAck {
    RegisterAck {
        session_id: SessionId("decode".to_owned()),
        boot_id: "prefill".to_owned(),
        rank: RankId::default(),
        layout: mk_layout(),
        kv_compat: "compat".to_owned(),
        liveness_port: 1,
        shm: shm.then(|| ShmOffer {
            host_id: "another".to_owned(),
            socket_name: "nowhere".to_owned(),
            in_dir: false,
        }),
        tcp,
        rdma,
        honours_prefix: true,
        refused: None,
    }
}

type Opening = Ready<Result<Arc<RdmaReceiver>, String>>;

async fn refused(wanted: TransportChoice, ack: &RegisterAck, rails: Option<Opening>) -> String {
    let chosen = choose(wanted, ack, (&[], None), "prefill", rails).await;
    chosen.err().expect("nothing in common").to_string()
}

#[tokio::test]
async fn tcp_serves_where_nothing_else_works() {
    let no_rail = || Some(ready(Err("the probe did not come".to_owned())));
    for (wanted, shm, rdma, rails) in [
        (TransportChoice::Auto, true, false, None),
        (TransportChoice::Auto, false, true, None),
        (TransportChoice::Auto, true, true, no_rail()),
        (TransportChoice::Only(Transport::Tcp), true, true, no_rail()),
    ] {
        let chosen = choose(
            wanted,
            &mk_ack(shm, rdma, true),
            (&[], None),
            "prefill",
            rails,
        )
        .await;
        assert!(
            matches!(chosen, Ok((NegotiatedTransport::Tcp, _))),
            "{wanted:?} {shm} {rdma}"
        );
    }
}

#[tokio::test]
async fn without_a_common_transport_the_error_names_what_each_side_has_and_the_flag() {
    let flag = "start both with --disaggregation-transfer-backend auto";
    assert_eq!(
        refused(
            TransportChoice::Only(Transport::Tcp),
            &mk_ack(true, false, false),
            None
        )
        .await,
        format!("no transport in common: prefill offers [shm], decode takes [tcp]; {flag}")
    );
    assert_eq!(
        refused(
            TransportChoice::Only(Transport::Shm),
            &mk_ack(false, true, true),
            None
        )
        .await,
        format!("no transport in common: prefill offers [rdma, tcp], decode takes [shm]; {flag}")
    );
}

#[tokio::test]
async fn what_both_have_and_does_not_work_is_named_with_the_reason() {
    let flag = "start both with --disaggregation-transfer-backend auto";
    assert_eq!(
        refused(TransportChoice::Auto, &mk_ack(true, false, false), None).await,
        format!(
            "no transport in common: prefill offers [shm], decode takes [shm, tcp]; shm does not \
             work: prefill runs on another host; {flag}"
        )
    );
    let no_rail = ready(Err("the probe did not come".to_owned()));
    assert_eq!(
        refused(
            TransportChoice::Only(Transport::Rdma),
            &mk_ack(true, true, true),
            Some(no_rail)
        )
        .await,
        format!(
            "no transport in common: prefill offers [shm, rdma, tcp], decode takes [rdma]; rdma \
             does not work: the probe did not come; {flag}"
        )
    );
}
