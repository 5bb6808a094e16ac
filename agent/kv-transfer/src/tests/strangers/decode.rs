//! Decodes that prefill takes: one that knows the number of a room in which it has no part, and one whose session
//! another process of the deployment knows.

use super::super::fixture::{Fixture, HOST, dst_items, mk_layout, mk_room, mk_transfer};
use super::super::peers::{KEY, OTHER_KEY, mk_keyed, mk_peers};
use crate::bootstrap::client::BootstrapClient;
use crate::config::{BootstrapAddr, TransferConfig, TransportChoice};
use crate::control::listener;
use crate::control::outbox::Outbox;
use crate::net::Stream;
use crate::peer_connection::{self, ConnectionKind};
use crate::tasks::Tasks;
use pd_identity::Peers;
use pd_protocol::control::{
    Abort, ControlMessage, Generation, KvArgsRegisterInfo, SessionId, TransferInfo,
};
use pd_protocol::layout::ParallelLayout;
use pd_protocol::{KvPoll, RankId, Transport};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;

/// A decode by hand, registered with a pair's prefill.
struct Decode {
    transfer: TransferConfig,
    /// Prefill's control and liveness ports.
    control: BootstrapAddr,
    liveness_port: u16,
    session_id: SessionId,
    outbox: Outbox,
    messages: mpsc::UnboundedReceiver<ControlMessage>,
    _liveness: Stream,
    _data: mpsc::UnboundedReceiver<Stream>,
}

impl Decode {
    async fn meet(pair: &Fixture, transfer: TransferConfig) -> Self {
        Self::meet_as(pair, transfer, 1).await
    }

    async fn meet_as(pair: &Fixture, transfer: TransferConfig, number: u64) -> Self {
        let (tx, mut messages) = mpsc::unbounded_channel();
        let tasks = Tasks::new(tokio::runtime::Handle::current());
        let port = listener::listen(&tasks, &transfer, move |message, _from| {
            let _ = tx.send(message);
        })
        .await
        .unwrap();
        let (data_tx, data) = mpsc::unbounded_channel();
        let data_port = peer_connection::listen(&tasks, &transfer, move |_, stream| {
            let _ = data_tx.send(stream);
        })
        .await
        .unwrap();
        let client = BootstrapClient::new(transfer.peers.clone(), Duration::from_secs(10));
        let addr = &pair.bootstrap.addr;
        let rank = client.rank(addr, RankId::default()).await.unwrap();
        let control = BootstrapAddr {
            host: rank.rank_ip,
            port: rank.rank_port,
        };
        let outbox = Outbox::connect(&tasks, &transfer.peers, &control);
        let session_id = SessionId::new("stranger", RankId::default(), number, 7);
        let registration = KvArgsRegisterInfo {
            session_id: session_id.clone(),
            endpoint: HOST.to_string(),
            dst_port: port,
            data_port,
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
        let addr = (control.host.as_str(), ack.liveness_port);
        let kind = ConnectionKind::Liveness;
        let liveness = peer_connection::connect(&transfer, addr, kind, &session_id).await;
        Self {
            transfer,
            control,
            liveness_port: ack.liveness_port,
            session_id,
            outbox,
            messages,
            _liveness: liveness.unwrap(),
            _data: data,
        }
    }

    fn abort(&self, room: u64, generation: u64) -> ControlMessage {
        ControlMessage::Abort(Abort {
            session_id: self.session_id.clone(),
            room: mk_room(room),
            generation: Generation(generation),
            reason: "not ours".to_owned(),
        })
    }

    /// Offers two pages behind a prefix for the fifth attempt at a room.
    fn offer(&self, room: u64, decode_prefix_len: u32) -> ControlMessage {
        ControlMessage::TransferInfo(TransferInfo {
            session_id: self.session_id.clone(),
            room: mk_room(room),
            generation: Generation(5),
            transport: Transport::Tcp,
            metadata_buffer_index: 0,
            required_dst_info_num: 1,
            decode_prefix_len,
            is_dummy: false,
            page_indices: vec![3, 1],
            state_indices: dst_items(),
        })
    }

    async fn wait_ack(&mut self) {
        loop {
            match self.messages.recv().await {
                Some(ControlMessage::AbortAck(_)) => return,
                // A room that ends says so as well.
                Some(ControlMessage::Status(_)) => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decode_without_part_in_a_room_cannot_give_it_up() {
    let transport = TransportChoice::Only(Transport::Tcp);
    let pair = tokio::task::block_in_place(|| Fixture::new(transport));
    let (sender, receiver) = tokio::task::block_in_place(|| pair.open(1, &[3, 1], 0));
    let mut decode = Decode::meet(&pair, mk_transfer(transport)).await;
    for generation in [0, 1] {
        decode.outbox.send(&decode.abort(1, generation)).unwrap();
        decode.wait_ack().await;
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
}

#[tokio::test(flavor = "multi_thread")]
async fn an_offer_behind_half_a_page_is_refused_with_a_reason() {
    let transport = TransportChoice::Only(Transport::Tcp);
    let pair = tokio::task::block_in_place(|| Fixture::new(transport));
    let mut decode = Decode::meet(&pair, mk_transfer(transport)).await;
    for prefix_len in [17, u32::MAX] {
        decode.outbox.send(&decode.offer(1, prefix_len)).unwrap();
        let Some(ControlMessage::Status(status)) = decode.messages.recv().await else {
            panic!("prefill answers an offer");
        };
        assert_eq!(status.poll, KvPoll::Failed);
        let reason = status.reason.unwrap();
        let said = format!("what follows {prefix_len} tokens where pages have 16");
        assert!(reason.contains(&said), "{reason}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_with_the_key_has_no_part_in_the_session_of_another() {
    let keyed = || mk_keyed(Transport::Tcp, KEY);
    let pair = tokio::task::block_in_place(|| Fixture::with(keyed(), keyed()));
    let mut decode = Decode::meet(&pair, keyed()).await;
    let sender = pair.sender(1);
    decode.outbox.send(&decode.offer(1, 0)).unwrap();
    let joined = decode.messages.recv().await;
    assert!(
        matches!(&joined, Some(ControlMessage::Status(status)) if status.poll == KvPoll::WaitingForInput),
        "{joined:?}"
    );

    let mut other = Decode::meet_as(&pair, keyed(), 2).await;
    other.outbox.send(&decode.abort(1, 5)).unwrap();
    // What is answered came after it.
    other.outbox.send(&other.abort(9, 1)).unwrap();
    other.wait_ack().await;
    let addr = (decode.control.host.as_str(), decode.liveness_port);
    let kind = ConnectionKind::Liveness;
    let id = &decode.session_id;
    let mut liveness = peer_connection::connect(&other.transfer, addr, kind, id)
        .await
        .unwrap();
    let mut said = Vec::new();
    // Closed without a word, of TLS either.
    let _ = liveness.read_to_end(&mut said).await;
    assert!(said.is_empty());
    assert_eq!(sender.poll(), KvPoll::WaitingForInput);

    decode.outbox.send(&decode.abort(1, 5)).unwrap();
    decode.wait_ack().await;
    assert_eq!(sender.poll(), KvPoll::Failed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_without_the_key_reaches_no_port_of_a_pair() {
    let keyed = || mk_keyed(Transport::Tcp, KEY);
    let pair = tokio::task::block_in_place(|| Fixture::with(keyed(), keyed()));
    let decode = Decode::meet(&pair, keyed()).await;
    let (sender, receiver) = tokio::task::block_in_place(|| pair.open(7, &[1, 2], 0));
    let tasks = Tasks::new(tokio::runtime::Handle::current());
    for peers in [Peers::Plain, mk_peers(OTHER_KEY)] {
        let stranger = TransferConfig {
            peers,
            ..mk_transfer(TransportChoice::Auto)
        };
        let client = BootstrapClient::new(stranger.peers.clone(), Duration::from_secs(10));
        assert!(client.topology(&pair.bootstrap.addr).await.is_err());
        let outbox = Outbox::connect(&tasks, &stranger.peers, &decode.control);
        outbox.closed().await;
        let addr = (decode.control.host.as_str(), decode.liveness_port);
        for kind in [ConnectionKind::Liveness, ConnectionKind::Data] {
            let stream = peer_connection::connect(&stranger, addr, kind, &decode.session_id).await;
            // A refusal in TLS 1.3 is known at the first read.
            if let Ok(mut stream) = stream {
                let mut said = Vec::new();
                let _ = stream.read_to_end(&mut said).await;
            }
        }
    }
    tokio::task::block_in_place(|| {
        pair.send(&sender, &[5, 6], 1, 0);
        pair.wait_end(&sender, &receiver);
    });
    assert_eq!(receiver.poll(), KvPoll::Success);
}
