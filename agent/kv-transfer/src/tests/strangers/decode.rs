//! A decode that prefill takes, and that knows the number of a room in which it has no part.

use super::super::fixture::{Fixture, HOST, mk_layout, mk_room};
use crate::bootstrap::client::BootstrapClient;
use crate::config::{BootstrapAddr, TransportChoice};
use crate::control::listener;
use crate::control::outbox::Outbox;
use crate::peer_connection::{self, ConnectionKind};
use crate::tasks::Tasks;
use pd_protocol::control::{Abort, ControlMessage, Generation, KvArgsRegisterInfo, SessionId};
use pd_protocol::layout::ParallelLayout;
use pd_protocol::{KvPoll, RankId, Transport};
use std::time::Duration;
use tokio::sync::mpsc;

#[tokio::test(flavor = "multi_thread")]
async fn a_decode_without_part_in_a_room_cannot_give_it_up() {
    let transport = TransportChoice::Only(Transport::Tcp);
    let pair = tokio::task::block_in_place(|| Fixture::new(transport));
    let (sender, receiver) = tokio::task::block_in_place(|| pair.open(1, &[3, 1], 0));

    let (tx, mut messages) = mpsc::unbounded_channel();
    let tasks = Tasks::new(tokio::runtime::Handle::current());
    let port = listener::listen(&tasks, HOST, move |message| {
        let _ = tx.send(message);
    })
    .await
    .unwrap();
    let client = BootstrapClient::new(Duration::from_secs(10));
    let rank = client
        .rank(&pair.bootstrap.addr, RankId::default())
        .await
        .unwrap();
    let outbox = Outbox::connect(
        &tasks,
        &BootstrapAddr {
            host: rank.rank_ip.clone(),
            port: rank.rank_port,
        },
    );
    let session_id = SessionId::new("stranger", RankId::default(), 1, 7);
    let registration = KvArgsRegisterInfo {
        session_id: session_id.clone(),
        endpoint: HOST.to_string(),
        dst_port: port,
        data_port: port,
        rank: RankId::default(),
        parallel: ParallelLayout::SINGLE,
        layout: mk_layout(),
        kv_compat: "compat".to_owned(),
    };
    let register = ControlMessage::Register(Box::new(registration));
    outbox.send(&register).unwrap();
    let Some(ControlMessage::RegisterAck(ack)) = messages.recv().await else {
        panic!("prefill answers a registration");
    };
    assert_eq!(ack.refused, None);
    let kind = ConnectionKind::Liveness;
    let liveness =
        peer_connection::connect(&rank.rank_ip, ack.liveness_port, kind, &session_id).await;
    for generation in [0, 1] {
        let abort = Abort {
            session_id: session_id.clone(),
            room: mk_room(1),
            generation: Generation(generation),
            reason: "not ours".to_owned(),
        };
        outbox.send(&ControlMessage::Abort(abort)).unwrap();
        let answer = messages.recv().await;
        assert!(
            matches!(answer, Some(ControlMessage::AbortAck(_))),
            "{answer:?}"
        );
    }

    tokio::task::block_in_place(|| {
        pair.send(&sender, &[0, 2], 1, 0);
        pair.wait_end(&sender, &receiver);
    });
    assert_eq!(
        receiver.poll(),
        KvPoll::Success,
        "{:?}",
        receiver.failure_reason()
    );
    pair.assert_arrived(1, &[0, 2], &[3, 1], 0);
    drop(liveness);
}
