//! Decode's view of one prefill rank: a registration that stands until the rank is silent for too long, or its
//! liveness, control or a data connection breaks (`DecodeSide::lose`).

use super::room::ReceiverRoom;
use super::{DecodeSide, Registered};
use crate::bootstrap::client::Topology;
use crate::config::{BootstrapAddr, rank_name};
use crate::control::outbox::Outbox;
use crate::failure::FailureReason;
use crate::liveness;
use crate::metrics::PeerMetrics;
use crate::net::Stream;
use crate::peer_connection::{self, ConnectionKind};
use crate::plan::{End, TransferPlan};
use crate::transport::inbound::Inbound;
use crate::transport::incoming::{InboundPeer, InboundRooms};
use crate::transport::negotiate::{self, NegotiatedTransport};
use crate::transport_report::PeerTransport;
use pd_identity::PeerId;
use pd_protocol::bootstrap::RankAddr;
use pd_protocol::compat::{KvMeaning, check_pair};
use pd_protocol::control::{ControlMessage, KvArgsRegisterInfo, RegisterAck, SessionId};
use pd_protocol::layout::{KvLayout, RankId};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// Names a prefill rank by where decode asks for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PeerKey {
    pub(crate) bootstrap_addr: BootstrapAddr,
    pub(crate) rank: RankId,
}

impl std::fmt::Display for PeerKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&rank_name(&self.bootstrap_addr, self.rank))
    }
}

pub(crate) struct PrefillPeer {
    pub(crate) key: PeerKey,
    pub(crate) remote: Arc<InboundPeer>,
    pub(crate) inbound: Inbound,
    /// The process that took the registration, where peers have a key: all of the session comes from it.
    pub(crate) process: Option<PeerId>,
    pub(crate) layout: KvLayout,
    /// It sends nothing of a prefix that decode has.
    pub(crate) honours_prefix: bool,
    pub(crate) plan: TransferPlan,
    /// It has begun to send: the KV transfer path works.
    pub(crate) proven: AtomicBool,
}

impl PrefillPeer {
    /// Prefill's NICs are done with a room.
    pub(crate) fn writes_no_more(&self, room: &ReceiverRoom) {
        let state = room.state.lock();
        if let Some(offer) = &state.offer {
            let row = offer.metadata_buffer_index;
            self.inbound.forget(row, room.generation);
        }
    }
}

/// Registers with a prefill rank and agrees on a transport.
pub(crate) async fn connect(
    side: Arc<DecodeSide>,
    key: PeerKey,
    topology: Topology,
) -> Result<Arc<PrefillPeer>, FailureReason> {
    let addr = side.bootstrap.rank(&key.bootstrap_addr, key.rank).await?;
    let endpoint = BootstrapAddr {
        host: addr.rank_ip.clone(),
        port: addr.rank_port,
    };
    let tasks = &side.shared.tasks;
    let outbox = Outbox::connect(tasks, &side.shared.config.transfer.peers, &endpoint);
    let session_id = side.new_session_id();
    // Prefill answers from a thread that no forward pass occupies.
    let patience = side.shared.config.transfer.patience();
    let answer = register(&side, &session_id, &outbox, &endpoint);
    let answer = tokio::time::timeout(patience, answer).await;
    let (ack, process) = answer.unwrap_or_else(|_| {
        let message = format!("prefill's control port {endpoint} was silent for {patience:?}");
        Err(FailureReason::peer(message))
    })?;
    check_ack(&side, &ack, &topology)?;
    let metrics = Arc::new(side.shared.config.transfer.metrics.enter(&key.to_string()));
    let (chosen, report) =
        negotiate(&side, &ack, &session_id, &addr.rank_ip, &outbox, &metrics).await?;
    let liveness = open_liveness(&side, &addr, &ack).await;
    let liveness = liveness.inspect_err(|_| side.rails.close(&session_id))?;
    let plan = plan(&side, key.rank, &ack, &topology);
    let remote = Arc::new(InboundPeer {
        bootstrap_addr: key.bootstrap_addr.clone(),
        session_id,
        transport: chosen.transport(),
        outbox,
        lost: CancellationToken::new(),
        metrics,
    });
    let rooms: Arc<dyn InboundRooms> = side.clone();
    let inbound = Inbound::start(chosen, &side.shared, rooms, &remote);
    let peer = Arc::new(PrefillPeer {
        key,
        remote,
        inbound,
        process,
        plan,
        honours_prefix: ack.honours_prefix,
        layout: ack.layout,
        proven: AtomicBool::new(false),
    });
    side.enter_peer(&peer);
    let transport_report = &side.shared.config.transfer.transport_report;
    transport_report.enter(peer.key.to_string(), report);
    let watching = watch(Arc::clone(&side), Arc::clone(&peer), liveness);
    tasks.spawn("liveness", watching);
    Ok(peer)
}

/// Opens the fastest transport that both ends have, and reports which and why.
async fn negotiate(
    side: &DecodeSide,
    ack: &RegisterAck,
    session_id: &SessionId,
    rank_ip: &str,
    outbox: &Outbox,
    metrics: &Arc<PeerMetrics>,
) -> Result<(NegotiatedTransport, PeerTransport), FailureReason> {
    let open_rails = side.rails.opener(session_id, outbox, metrics);
    let wanted = side.shared.config.transfer.transport;
    let own = (
        side.regions(),
        side.shared.config.transfer.shm_dir.as_deref(),
    );
    let chosen = negotiate::choose(wanted, ack, own, rank_ip, open_rails).await;
    let (chosen, fallback_reason) =
        chosen.map_err(|error| FailureReason::peer(error.to_string()))?;
    let report = chosen.report(&fallback_reason);
    Ok((chosen, report))
}

/// What comes from a prefill rank.
fn plan(side: &DecodeSide, rank: RankId, ack: &RegisterAck, topology: &Topology) -> TransferPlan {
    let prefill = End {
        layout: &ack.layout,
        parallel: &topology.info.parallel(),
        rank,
    };
    TransferPlan::new(prefill, side.shared.end())
}

/// Sends the registration again until it is answered.
async fn register(
    side: &DecodeSide,
    session_id: &SessionId,
    outbox: &Outbox,
    endpoint: &BootstrapAddr,
) -> Result<Registered, FailureReason> {
    let config = &side.shared.config;
    let info = ControlMessage::Register(Box::new(KvArgsRegisterInfo {
        session_id: session_id.clone(),
        endpoint: config.transfer.host.to_string(),
        dst_port: side.control_port(),
        data_port: side.data_port(),
        rank: config.rank,
        parallel: config.parallel,
        layout: config.kv.layout.clone(),
        kv_compat: config.kv_compat.clone(),
    }));
    let (answer_tx, mut answer_rx) = oneshot::channel();
    side.expect_ack(session_id, answer_tx);
    loop {
        outbox.send(&info).map_err(|error| {
            FailureReason::network(format!("prefill's control port {endpoint}: {error}"))
        })?;
        let patience = config.transfer.resend_interval;
        if let Ok(answer) = tokio::time::timeout(patience, &mut answer_rx).await {
            return answer.map_err(|_| FailureReason::application("the manager is shutting down"));
        }
    }
}

fn check_ack(
    side: &DecodeSide,
    ack: &RegisterAck,
    topology: &Topology,
) -> Result<(), FailureReason> {
    let config = &side.shared.config;
    if let Some(why) = &ack.refused {
        return Err(FailureReason::peer(format!("prefill refused us: {why}")));
    }
    if topology
        .boot_id
        .as_ref()
        .is_some_and(|boot_id| *boot_id != ack.boot_id)
    {
        let message = "prefill restarted between two questions; ask again";
        return Err(FailureReason::peer(message));
    }
    let layout = ack.layout.validate();
    layout.map_err(|error| FailureReason::peer(format!("prefill's KV layout: {error}")))?;
    let prefill = KvMeaning {
        kv_compat: &ack.kv_compat,
        layout: &ack.layout,
    };
    let own = KvMeaning {
        kv_compat: &config.kv_compat,
        layout: &config.kv.layout,
    };
    check_pair(prefill, own).map_err(|error| FailureReason::peer(error.to_string()))
}

async fn open_liveness(
    side: &DecodeSide,
    addr: &RankAddr,
    ack: &RegisterAck,
) -> Result<Stream, FailureReason> {
    let (host, port) = (addr.rank_ip.as_str(), ack.liveness_port);
    let (transfer, kind) = (&side.shared.config.transfer, ConnectionKind::Liveness);
    let opened = peer_connection::connect(transfer, (host, port), kind, &ack.session_id).await;
    opened.map_err(|error| {
        FailureReason::network(format!("liveness connection to {host}:{port}: {error}"))
    })
}

async fn watch(side: Arc<DecodeSide>, peer: Arc<PrefillPeer>, stream: Stream) {
    let name = format!("prefill {}", peer.key.bootstrap_addr);
    let transfer = &side.shared.config.transfer;
    let (interval, patience) = (transfer.heartbeat_interval, transfer.patience());
    tokio::select! {
        reason = liveness::watch(&name, stream, interval, patience) => {
            side.lose(&peer, &reason);
        }
        () = peer.remote.outbox.closed() => {
            let reason = format!("the control connection to {name} is closed");
            side.lose(&peer, &FailureReason::network(reason));
        }
        () = peer.remote.lost.cancelled() => {}
    }
}
