//! Prefill's rooms: who may open one, what its senders are told, when it ends.

use crate::config::Transport;
use crate::failure::FailureReason;
use crate::fence::Fence;
use crate::manager::{OpenError, Shared, StartError};
use crate::progress::Progress;
use crate::sender::{ChunkReport, KvSender, LastChunk, SenderRequest};
use parking_lot::Mutex;
use pd_protocol::{BootstrapRoom, KvPoll};
use std::collections::HashMap;
use std::sync::Arc;

pub(crate) struct PrefillSide {
    shared: Arc<Shared>,
    rooms: Mutex<HashMap<BootstrapRoom, Arc<SenderRoom>>>,
}

/// One room on prefill.
pub(crate) struct SenderRoom {
    pub(crate) id: BootstrapRoom,
    pub(crate) fake: bool,
    pub(crate) progress: Progress,
    pub(crate) fence: Fence,
    state: Mutex<SenderState>,
}

#[derive(Default)]
struct SenderState {
    page_count: Option<usize>,
    metadata_buffer_index: Option<u32>,
    sent_pages: usize,
    reports: Vec<ChunkReport>,
}

impl PrefillSide {
    pub(crate) fn start(shared: Arc<Shared>) -> Result<Arc<Self>, StartError> {
        Ok(Arc::new(Self {
            shared,
            rooms: Mutex::default(),
        }))
    }

    pub(crate) fn open(self: &Arc<Self>, request: SenderRequest) -> Result<KvSender, OpenError> {
        let SenderRequest { room: id, fake } = request;
        let waker = &self.shared.config.waker;
        let room = Arc::new(SenderRoom {
            id,
            fake: fake || self.shared.config.transfer.transport == Transport::Fake,
            progress: Progress::new(Arc::clone(waker)),
            fence: Fence::new(Arc::clone(waker)),
            state: Mutex::default(),
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
        Ok(KvSender {
            side: Arc::clone(self),
            room,
        })
    }

    pub(crate) fn init(&self, room: &SenderRoom, page_count: usize, metadata_buffer_index: u32) {
        let mut state = room.state.lock();
        state.page_count = Some(page_count);
        state.metadata_buffer_index = Some(metadata_buffer_index);
    }

    pub(crate) fn send(&self, room: &SenderRoom, page_indices: &[u32], last: Option<LastChunk>) {
        let sent_pages = {
            let mut state = room.state.lock();
            state.sent_pages += page_indices.len();
            state.sent_pages
        };
        room.progress.advance(KvPoll::Transferring);
        let promised = room.state.lock().page_count.unwrap_or_default();
        if sent_pages > promised || (last.is_some() && sent_pages != promised) {
            let message = format!("{sent_pages} pages were sent, but init promised {promised}");
            self.fail(room, FailureReason::application(message));
        } else if last.is_some() && room.fake {
            room.fence.close();
            room.progress.advance(KvPoll::Success);
        }
    }

    pub(crate) fn fail(&self, room: &SenderRoom, reason: FailureReason) {
        room.fence.close();
        room.progress.fail(reason);
    }

    pub(crate) fn close(&self, room: &SenderRoom) {
        self.rooms.lock().remove(&room.id);
    }
}

impl SenderRoom {
    pub(crate) fn take_reports(&self) -> Vec<ChunkReport> {
        std::mem::take(&mut self.state.lock().reports)
    }
}
