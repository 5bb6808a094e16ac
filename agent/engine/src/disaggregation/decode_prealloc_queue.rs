//! `DecodePreallocQueue`: requests without pages for the KV that they will receive.
//!
//! Life of a request here:
//! 1. `push`: a `KvReceiver` opens its room and looks for prefill (`Bootstrapping`).
//! 2. Prefill is known (`WaitingForInput`): `pop_preallocated` reserves a request row, pages for
//!    the prompt and a metadata row, if both checks of [`Headroom`] pass, and sends prefill the
//!    destination. First come, first served: a request that does not fit blocks those behind it.
//! 3. Or prefill is not found, or gives up: the request fails here and never cost a page.

use super::TransferEnd;
use super::decode_transfer_queue::Arriving;
use super::fence::Fence;
use super::headroom::Headroom;
use super::transfer::failure;
use crate::command::RequestId;
use crate::recorder::Recorder;
use crate::req::Req;
use crate::resources::Resources;
use pd_kv_transfer::{BootstrapAddr, KvReceiver, ReceiverRequest};
use pd_protocol::KvPoll;
use pd_protocol::timeline::Stage;
use std::collections::VecDeque;
use std::time::Instant;

/// SGLang's `DecodePreallocQueue`.
#[derive(Debug, Default)]
pub(crate) struct DecodePreallocQueue {
    reqs: VecDeque<(Req, KvReceiver)>,
}

// === impl DecodePreallocQueue ===

impl DecodePreallocQueue {
    pub(crate) fn len(&self) -> usize {
        self.reqs.len()
    }

    /// Slots that the waiting requests will need for their prompts.
    pub(crate) fn waiting_tokens(&self) -> usize {
        self.reqs.iter().map(|(req, _)| req.prompt_len).sum()
    }

    /// When the first one began to wait.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        let (req, _) = self.reqs.front()?;
        Some(req.times.received)
    }

    pub(crate) fn push(&mut self, recorder: &Recorder, end: &TransferEnd, req: Req) {
        let bootstrap = req.bootstrap.as_ref();
        let bootstrap = bootstrap.expect("submission checks the bootstrap fields");
        let opened = end.manager.receiver(ReceiverRequest {
            bootstrap_addr: BootstrapAddr {
                host: bootstrap.bootstrap_host.clone(),
                port: bootstrap.bootstrap_port,
            },
            room: bootstrap.bootstrap_room,
            prefill_dp_rank: None,
        });
        match opened {
            Ok(receiver) => {
                recorder.stage(&req, Stage::DecodeQueued);
                self.reqs.push_back((req, receiver));
            }
            Err(error) => recorder.fail_bootstrap(&req, &error.to_string(), false),
        }
    }

    /// Ends the requests whose bootstrap failed.
    pub(crate) fn drop_failed(&mut self, recorder: &Recorder, fence: &mut Fence) {
        for (req, receiver) in std::mem::take(&mut self.reqs) {
            if receiver.poll() == KvPoll::Failed {
                let reason = failure(receiver.failure_reason());
                recorder.fail_bootstrap(&req, &reason, true);
                fence.take_transfer(receiver.into());
            } else {
                self.reqs.push_back((req, receiver));
            }
        }
    }

    /// Removes the requests that have got pages; their KV may arrive.
    pub(crate) fn pop_preallocated(
        &mut self,
        resources: &mut Resources,
        end: &mut TransferEnd,
        mut headroom: Headroom,
    ) -> Vec<Arriving> {
        let mut preallocated = Vec::new();
        while let Some(place) = self.reqs.iter().position(knows_prefill) {
            let (req, _) = &self.reqs[place];
            if end.metadata_rows.available() == 0
                || !headroom.try_take(req.prompt_len, req.remaining_len())
            {
                break;
            }
            let len = req.prompt_len;
            let Some(kv) = resources.cache.begin_received(len, len) else {
                break;
            };
            let (req, receiver) = self.reqs.remove(place).expect("the place was found above");
            let row = end.metadata_rows.alloc();
            let row = row.expect("a row was available above");
            let cleared = end.metadata.clear_row(row);
            cleared.expect("every index of the allocator has a row");
            let pages = resources.cache.page_ids(&kv);
            receiver.init(&pages, row, &end.state_indices(&resources.cache, &kv));
            resources
                .recorder
                .bootstrapped(&req, Stage::DecodePreallocated);
            preallocated.push(Arriving {
                req,
                receiver,
                kv,
                row,
                since: Instant::now(),
            });
        }
        preallocated
    }

    pub(crate) fn take(&mut self, id: RequestId) -> Option<(Req, KvReceiver)> {
        let place = self.reqs.iter().position(|(req, _)| req.id == id)?;
        self.reqs.remove(place)
    }

    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = (Req, KvReceiver)> {
        std::mem::take(&mut self.reqs).into_iter()
    }
}

fn knows_prefill((_, receiver): &(Req, KvReceiver)) -> bool {
    matches!(receiver.poll(), KvPoll::WaitingForInput)
}
