//! The task of one room on decode, from the bootstrap server to its end: one step after another, each
//! within its bound but the wait for `init`, which is the engine's. It sets `WaitingForInput`, then offers the memory of `init`, and from there on only waits:
//! `Transferring` and `Success` are set as parts come in (`incoming.rs`), over rdma `Transferring` also with
//! prefill's report of it (`messages.rs`).

use super::DecodeSide;
use super::prefill_peer::{self, PeerKey};
use super::room::{PrefillSource, ReceiverRoom};
use crate::bootstrap::client::Topology;
use crate::control::outbox::SendError;
use crate::failure::FailureReason;
use crate::fault_injection::FaultPoint;
use crate::plan::{self, TransferPlan};
use crate::ranks::resolve_rank_mapping;
use crate::transport::incoming::InboundRoom;
use pd_protocol::KvPoll;
use pd_protocol::control::{ControlMessage, TransferInfo};
use pd_protocol::layout::RankId;
use std::sync::Arc;

/// Runs until the room has ended.
pub(crate) async fn run(side: Arc<DecodeSide>, room: Arc<ReceiverRoom>) {
    tokio::select! {
        failed = steps(&side, &room) => {
            if let Err(reason) = failed {
                side.fail(&room, reason);
            }
        }
        _ = room.progress.reached(KvPoll::Success) => {}
    }
}

async fn steps(side: &Arc<DecodeSide>, room: &Arc<ReceiverRoom>) -> Result<(), FailureReason> {
    let transfer = &side.shared.config.transfer;
    fail_on_purpose(room, FaultPoint::Bootstrap)?;
    let bound = transfer.bootstrap_timeout;
    let found = tokio::time::timeout(bound, find_sources(side, room)).await;
    found.unwrap_or_else(|_| {
        let prefill = &room.bootstrap_addr;
        let message = format!(
            "room {}: prefill {prefill} was not ready in {bound:?}",
            room.id
        );
        Err(FailureReason::network(message))
    })?;
    fail_on_purpose(room, FaultPoint::Waiting)?;
    room.progress.advance(KvPoll::WaitingForInput);

    room.offered.notified().await;
    open_memory(room)?;
    let bound = transfer.waiting_timeout;
    let announced = announce(side, room);
    tokio::select! {
        failed = announced => failed?,
        started = tokio::time::timeout(bound, room.progress.reached(KvPoll::Transferring)) => {
            started.map_err(|_| {
                let message = format!("room {}: prefill sent nothing in {bound:?}", room.id);
                FailureReason::network(message)
            })?;
        }
    }
    let bound = transfer.transfer_timeout;
    let ended = tokio::time::timeout(bound, room.progress.reached(KvPoll::Success)).await;
    ended.map(|_| ()).map_err(|_| {
        let message = format!("room {}: the transfer did not end in {bound:?}", room.id);
        FailureReason::network(message)
    })
}

fn fail_on_purpose(room: &ReceiverRoom, stage: FaultPoint) -> Result<(), FailureReason> {
    match room.fault_point {
        Some(chosen) if chosen == stage => Err(stage.reason(room.id)),
        _ => Ok(()),
    }
}

/// Asks the bootstrap server which prefill ranks serve the room, and registers with each.
async fn find_sources(side: &Arc<DecodeSide>, room: &ReceiverRoom) -> Result<(), FailureReason> {
    let addr = room.bootstrap_addr.clone();
    let client = side.bootstrap.clone();
    let asked = addr.clone();
    let question = async move { client.topology(&asked).await };
    // A topology is old when its peer is lost. One that was read for a room that has ended since has no peer, and may be
    // that of an earlier process.
    if !side.is_registered_with(&addr) {
        side.topologies.forget(&addr);
    }
    let topology = side.topologies.get(addr.clone(), question).await?;
    let found = register_with_sources(side, room, &topology).await;
    // A prefill that does not fit may be back with another layout when it is asked again.
    found.inspect_err(|_| side.topologies.forget(&addr))
}

async fn register_with_sources(
    side: &Arc<DecodeSide>,
    room: &ReceiverRoom,
    topology: &Topology,
) -> Result<(), FailureReason> {
    let config = &side.shared.config;
    side.check_topology(topology)?;
    let prefill = topology.info.parallel();
    let sources = resolve_rank_mapping(&prefill, &config.parallel, config.rank, &config.kv.layout)
        .map_err(|error| FailureReason::peer(error.to_string()))?;
    let dp_rank = room
        .prefill_dp_rank
        .unwrap_or_else(|| room.id.dp_rank(prefill.dp_size));
    for source in &sources {
        let key = PeerKey {
            bootstrap_addr: room.bootstrap_addr.clone(),
            rank: RankId {
                dp_rank,
                ..source.rank
            },
        };
        let attempt = prefill_peer::connect(Arc::clone(side), key.clone(), topology.clone());
        let peer = side.registrations.get(key, attempt).await?;
        room.state.lock().wait_for(peer, source);
    }
    let state = room.state.lock();
    let plans: Vec<&TransferPlan> = state
        .sources
        .iter()
        .map(|source| &source.peer.plan)
        .collect();
    plan::check_whole(&config.kv.layout, &plans).map_err(FailureReason::peer)
}

/// Opens the room's memory to the NICs of those that write by themselves.
fn open_memory(room: &Arc<ReceiverRoom>) -> Result<(), FailureReason> {
    let state = room.state.lock();
    let offer = state.offer.as_ref();
    let offer = offer.expect("the caller waited for the offer");
    if offer.decode_prefix_len > 0 && !state.honours_prefix() {
        let (id, len) = (room.id, offer.decode_prefix_len);
        let message = format!(
            "room {id}: prefill would send the first {len} tokens, too, which were not offered"
        );
        return Err(FailureReason::application(message));
    }
    let row = offer.metadata_buffer_index;
    for source in state.sources.iter().filter(|source| !source.is_dummy) {
        let writer: Arc<dyn InboundRoom> = room.clone();
        if !source.peer.inbound.expect(row, writer) {
            let message = format!("room {}: prefill's rails are gone", room.id);
            return Err(FailureReason::network(message));
        }
    }
    Ok(())
}

/// Sends each source its `TransferInfo`, again until it has answered. Never ends by itself
/// but by an error: the caller waits for the first byte beside it.
async fn announce(side: &DecodeSide, room: &ReceiverRoom) -> Result<(), FailureReason> {
    loop {
        send_infos(room)
            .map_err(|error| FailureReason::network(format!("room {}: {error}", room.id)))?;
        tokio::time::sleep(side.shared.config.transfer.resend_interval).await;
    }
}

/// Sends a `TransferInfo` to each source that has not answered. None follows an abort of the room: prefill answers that
/// once it writes nothing more, and would write again.
pub(crate) fn send_infos(room: &ReceiverRoom) -> Result<(), SendError> {
    // A room that fails sends its aborts only after it has taken this lock.
    let state = room.state.lock();
    if room.progress.poll().is_terminal() {
        return Ok(());
    }
    let offer = state
        .offer
        .as_ref()
        .expect("the caller waited for the offer");
    let sources = state.sources.iter().filter(|source| !source.answered);
    let info = |source: &PrefillSource| TransferInfo {
        session_id: source.peer.remote.session_id.clone(),
        room: room.id,
        generation: room.generation,
        transport: source.peer.remote.transport,
        metadata_buffer_index: offer.metadata_buffer_index,
        required_dst_info_num: source.required_dst_info_num,
        decode_prefix_len: offer.decode_prefix_len,
        is_dummy: source.is_dummy,
        page_indices: if source.is_dummy {
            Vec::new()
        } else {
            offer.page_indices.clone()
        },
        state_indices: if source.is_dummy {
            Vec::new()
        } else {
            offer.state_indices.clone()
        },
    };
    for source in sources {
        let info = ControlMessage::TransferInfo(info(source));
        source.peer.remote.outbox.send(&info)?;
    }
    Ok(())
}
