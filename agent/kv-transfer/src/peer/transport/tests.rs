//! Facts about the choice of a transport.

use super::*;
use crate::tests::fixture::mk_layout;
use pd_protocol::RankId;
use pd_protocol::control::{SessionId, ShmOffer};

/// The answer of a prefill on another host.
fn mk_ack(shm: bool, tcp: bool) -> RegisterAck {
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
        }),
        tcp,
        refused: None,
    }
}

async fn refused(wanted: Transport, ack: &RegisterAck) -> String {
    choose(wanted, ack, "prefill")
        .await
        .unwrap_err()
        .to_string()
}

#[tokio::test]
async fn tcp_serves_where_memory_cannot_be_shared() {
    for (wanted, shm) in [
        (Transport::Auto, true),
        (Transport::Auto, false),
        (Transport::Tcp, true),
    ] {
        let (mode, mapping) = choose(wanted, &mk_ack(shm, true), "prefill").await.unwrap();
        assert_eq!(mode, TransferMode::Tcp);
        assert!(mapping.is_none());
    }
}

#[tokio::test]
async fn sides_with_nothing_in_common_are_told_what_each_has_and_the_flag() {
    let flag = "start both with --disaggregation-transfer-backend auto";
    assert_eq!(
        refused(Transport::Tcp, &mk_ack(true, false)).await,
        format!("no transport in common: prefill offers [shm], decode takes [tcp]; {flag}")
    );
    assert_eq!(
        refused(Transport::Shm, &mk_ack(false, true)).await,
        format!("no transport in common: prefill offers [tcp], decode takes [shm]; {flag}")
    );
}

#[tokio::test]
async fn shared_memory_alone_between_two_hosts_is_refused_with_the_reason() {
    assert_eq!(
        refused(Transport::Auto, &mk_ack(true, false)).await,
        "no transport in common: prefill offers [shm], decode takes [shm, tcp], and shm does not \
         work: prefill runs on another host; start both with --disaggregation-transfer-backend auto"
    );
    let both = refused(Transport::Shm, &mk_ack(true, true)).await;
    assert!(
        both.contains("offers [shm, tcp], decode takes [shm], and shm"),
        "{both}"
    );
}
