//! A hostile prefill. For any message of it, bytes land only in the pages of a live room, and
//! memory comes back without its help.

mod decode;
mod frames;
mod rails;

use super::bootstrap::mk_bootstrap;
use super::fixture::{Worker, dst_items, mk_layout, mk_room, mk_transfer, next_boot};
use crate::KvReceiver;
use crate::bootstrap::client::BootstrapClient;
use crate::bootstrap::table::tests::mk_registration;
use crate::config::{BootstrapAddr, TransferConfig, TransportChoice};
use crate::control::listener;
use crate::control::outbox::Outbox;
use crate::decode_side::room_task::send_infos;
use crate::net::Stream;
use crate::peer_connection::{self, ConnectionKind};
use crate::plan::{End, Tail, TransferPlan};
use crate::tasks::Tasks;
use crate::transport::tcp::frame::{FrameHeader, VALID};
use pd_identity::Peers;
use pd_protocol::Role;
use pd_protocol::Transport;
use pd_protocol::control::{
    ControlMessage, Generation, KvArgsRegisterInfo, RegisterAck, TransferInfo,
};
use pd_protocol::metadata::MetadataRow;
use pd_protocol::{KvPoll, RankId};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

/// The stranger's ends of one session.
struct Stranger {
    decode: Worker,
    /// Decode's first room; it never gets anything.
    first: KvReceiver,
    addr: BootstrapAddr,
    data: Option<Stream>,
    outbox: Outbox,
    messages: mpsc::UnboundedReceiver<ControlMessage>,
    registration: KvArgsRegisterInfo,
    _bootstrap: super::bootstrap::Bootstrap,
    _links: mpsc::UnboundedReceiver<Stream>,
}

/// A stranger with one data connection.
async fn mk_stranger() -> Stranger {
    mk_stranger_to(mk_transfer(TransportChoice::Only(Transport::Tcp))).await
}

async fn mk_stranger_to(transfer: TransferConfig) -> Stranger {
    let mut stranger = meet(transfer, false).await;
    let Stranger { decode, first, .. } = &stranger;
    decode.wait("registered", || first.poll() == KvPoll::WaitingForInput);
    let KvArgsRegisterInfo {
        endpoint,
        data_port,
        session_id,
        ..
    } = &stranger.registration;
    let plain = mk_transfer(TransportChoice::Auto);
    let (addr, kind) = ((endpoint.as_str(), *data_port), ConnectionKind::Data);
    let data = peer_connection::connect(&plain, addr, kind, session_id).await;
    stranger.data = Some(data.unwrap());
    stranger
}

/// Answers a decode's registration by hand.
async fn meet(transfer: TransferConfig, rdma: bool) -> Stranger {
    meet_with(transfer, |ack| (ack.rdma, ack.tcp) = (rdma, !rdma)).await
}

async fn meet_with(transfer: TransferConfig, change: impl FnOnce(&mut RegisterAck)) -> Stranger {
    let plain = mk_transfer(TransportChoice::Auto);
    let boot_id = next_boot();
    let bootstrap = mk_bootstrap(0, &boot_id);
    let (message_tx, mut messages) = mpsc::unbounded_channel();
    let tasks = Tasks::new(tokio::runtime::Handle::current());
    let port = listener::listen(&tasks, &plain, move |message, _from| {
        let _ = message_tx.send(message);
    })
    .await
    .unwrap();
    let (link_tx, links) = mpsc::unbounded_channel();
    let liveness_port = peer_connection::listen(&tasks, &plain, move |_, stream| {
        let _ = link_tx.send(stream);
    })
    .await
    .unwrap();
    let client = BootstrapClient::new(Peers::Plain, Duration::from_secs(10));
    let route = mk_registration(1, 0, port);
    client
        .register(&bootstrap.addr, &route, &boot_id)
        .await
        .unwrap();

    let layout = mk_layout();
    let decode = Worker::start(Role::Decode, &next_boot(), None, &layout, transfer);
    decode.fill(9);
    let first = decode.receiver(&bootstrap.addr, 1);
    let Some(ControlMessage::Register(registration)) = messages.recv().await else {
        panic!("decode registers first");
    };
    let endpoint = BootstrapAddr {
        host: registration.endpoint.clone(),
        port: registration.dst_port,
    };
    let mut ack = RegisterAck {
        rdma: false,
        honours_prefix: false,
        session_id: registration.session_id.clone(),
        boot_id,
        rank: RankId::default(),
        layout,
        kv_compat: "compat".to_owned(),
        liveness_port,
        shm: None,
        tcp: true,
        refused: None,
    };
    change(&mut ack);
    let outbox = Outbox::connect(&tasks, &Peers::Plain, &endpoint);
    outbox
        .send(&ControlMessage::RegisterAck(Box::new(ack)))
        .unwrap();
    Stranger {
        decode,
        first,
        addr: bootstrap.addr.clone(),
        data: None,
        outbox,
        messages,
        registration: *registration,
        _bootstrap: bootstrap,
        _links: links,
    }
}

impl Stranger {
    fn data(&mut self) -> &mut Stream {
        self.data.as_mut().expect("it has a data connection")
    }

    /// A room of decode that offers `pages`, and the generation it was announced with.
    async fn room(&mut self, room: u64, pages: &[u32]) -> (KvReceiver, Generation) {
        let receiver = self.decode.receiver(&self.addr, room);
        receiver.init(pages, 0, &dst_items());
        loop {
            let message = self.messages.recv().await.unwrap();
            if let ControlMessage::TransferInfo(TransferInfo {
                room: id,
                generation,
                ..
            }) = message
                && id == mk_room(room)
            {
                return (receiver, generation);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prefix_is_nothing_to_a_prefill_that_would_send_it_too() {
    let stranger = mk_stranger().await;
    let receiver = stranger.decode.receiver(&stranger.addr, 7);
    stranger.decode.wait("prefill is known", || {
        receiver.poll() == KvPoll::WaitingForInput
    });
    assert!(!receiver.honours_prefix());
    receiver.init_behind(16, &[1], 0, &dst_items());
    stranger
        .decode
        .wait("it is refused", || receiver.poll() == KvPoll::Failed);
    let reason = receiver.failure_reason().unwrap();
    let said = "prefill would send the first 16 tokens, too";
    assert!(reason.message.contains(said), "{reason}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_pages_are_offered_after_the_abort_of_their_room() {
    let mut stranger = mk_stranger().await;
    let receiver = stranger.decode.receiver(&stranger.addr, 7);
    receiver.init(&[1, 2], 0, &dst_items());
    stranger.decode.wait("prefill is known", || {
        receiver.poll() == KvPoll::WaitingForInput
    });
    receiver.abort();
    while !matches!(
        stranger.messages.recv().await,
        Some(ControlMessage::Abort(_))
    ) {}
    // The room's task may be about to offer as the room fails.
    send_infos(&receiver.room).unwrap();
    let other = stranger.decode.receiver(&stranger.addr, 8);
    other.init(&[5], 1, &dst_items());
    loop {
        match stranger.messages.recv().await {
            Some(ControlMessage::TransferInfo(info)) if info.room == mk_room(8) => break,
            Some(ControlMessage::TransferInfo(info)) => assert_ne!(info.room, mk_room(7)),
            Some(_) => {}
            None => panic!("decode lives"),
        }
    }
}
