//! Decode's rooms: who may open one, what is offered to prefill, when it ends.

use crate::config::Transport;
use crate::failure::FailureReason;
use crate::fence::Fence;
use crate::manager::{OpenError, Shared, StartError};
use crate::progress::Progress;
use crate::receiver::{KvReceiver, ReceiverRequest, TransferReport};
use parking_lot::Mutex;
use pd_protocol::metadata::MetadataRow;
use pd_protocol::ports::FAKE_BOOTSTRAP_HOST;
use pd_protocol::{BootstrapRoom, KvPoll};
use std::collections::HashMap;
use std::sync::Arc;

pub(crate) struct DecodeSide {
    shared: Arc<Shared>,
    rooms: Mutex<HashMap<BootstrapRoom, Arc<ReceiverRoom>>>,
    reclaimed: Mutex<Vec<Reclaimed>>,
}

/// Memory of a dropped receiver that may be used again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reclaimed {
    pub room: BootstrapRoom,
    pub page_indices: Vec<u32>,
    pub metadata_buffer_index: u32,
    pub state_indices: Vec<u32>,
}

/// One room on decode.
pub(crate) struct ReceiverRoom {
    pub(crate) id: BootstrapRoom,
    pub(crate) fake: bool,
    pub(crate) progress: Progress,
    pub(crate) fence: Fence,
    offer: Mutex<Option<Reclaimed>>,
    report: Mutex<Option<TransferReport>>,
}

impl DecodeSide {
    pub(crate) fn start(shared: Arc<Shared>) -> Result<Arc<Self>, StartError> {
        Ok(Arc::new(Self {
            shared,
            rooms: Mutex::default(),
            reclaimed: Mutex::default(),
        }))
    }

    pub(crate) fn open(
        self: &Arc<Self>,
        request: ReceiverRequest,
    ) -> Result<KvReceiver, OpenError> {
        let waker = &self.shared.config.waker;
        let id = request.room;
        let room = Arc::new(ReceiverRoom {
            id,
            fake: request.bootstrap_addr.host == FAKE_BOOTSTRAP_HOST
                || self.shared.config.transfer.transport == Transport::Fake,
            progress: Progress::new(Arc::clone(waker)),
            fence: Fence::new(Arc::clone(waker)),
            offer: Mutex::default(),
            report: Mutex::default(),
        });
        let mut rooms = self.rooms.lock();
        if rooms.contains_key(&id) {
            return Err(OpenError::DuplicateRoom(id));
        }
        rooms.insert(id, Arc::clone(&room));
        drop(rooms);
        if room.fake {
            room.progress.advance(KvPoll::WaitingForInput);
        }
        Ok(KvReceiver {
            side: Arc::clone(self),
            room,
        })
    }

    pub(crate) fn init(
        &self,
        room: &ReceiverRoom,
        page_indices: &[u32],
        metadata_buffer_index: u32,
        state_indices: &[u32],
    ) {
        *room.offer.lock() = Some(Reclaimed {
            room: room.id,
            page_indices: page_indices.to_vec(),
            metadata_buffer_index,
            state_indices: state_indices.to_vec(),
        });
        if room.fake {
            self.receive_fake(room, metadata_buffer_index);
        }
    }

    fn receive_fake(&self, room: &ReceiverRoom, metadata_buffer_index: u32) {
        let row = MetadataRow::new(room.id, 0);
        let metadata = &self.shared.config.kv.metadata;
        match metadata.write_row(metadata_buffer_index, &row) {
            Ok(()) => {
                room.fence.close();
                room.progress.advance(KvPoll::Success);
            }
            Err(error) => self.fail(room, FailureReason::application(error.to_string())),
        }
    }

    pub(crate) fn fail(&self, room: &ReceiverRoom, reason: FailureReason) {
        room.fence.close();
        room.progress.fail(reason);
    }

    pub(crate) fn close(&self, room: &ReceiverRoom) {
        self.rooms.lock().remove(&room.id);
    }

    pub(crate) fn take_reclaimed(&self) -> Vec<Reclaimed> {
        std::mem::take(&mut self.reclaimed.lock())
    }
}

impl ReceiverRoom {
    pub(crate) fn report(&self) -> Option<TransferReport> {
        *self.report.lock()
    }
}
