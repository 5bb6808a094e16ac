//! `DecodePreallocQueue`: requests without pages for the KV that they will receive.
//!
//! Life of a request here:
//! 1. `push`: a `KvReceiver` opens its room and looks for prefill (`Bootstrapping`).
//! 2. Prefill is known (`WaitingForInput`): `pop_preallocated` reserves a request row, pages for
//!    the prompt and a metadata row, if both checks of [`Headroom`] pass, and sends prefill the
//!    destination. First come, first served: a request that does not fit blocks those behind it.
//! 3. Or prefill is not found, or gives up: the request fails here and never cost a page.

use super::TransferEnd;
use super::fence::Fence;
use crate::engine::RequestId;
use crate::req::{Req, Transfer};
use crate::resources::Resources;
use crate::schedule::CLIP_MAX_NEW_TOKENS;
use crate::timeline::stage_now;
use pd_compute::Backend;
use pd_kv_transfer::{BootstrapAddr, ReceiverRequest};
use pd_protocol::KvPoll;
use pd_protocol::timeline::Stage;
use std::collections::VecDeque;
use std::time::Instant;

/// SGLang's `DecodePreallocQueue`.
#[derive(Debug, Default)]
pub(crate) struct DecodePreallocQueue {
    reqs: VecDeque<Req>,
}

/// SGLang's `_allocatable_tokens`: slots available to future requests without starving the present
/// ones. Source: docs/sglang-protocol.md#decode-memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Headroom {
    /// Already excludes the slots that running, arriving and arrived requests keep for their next
    /// tokens, and those that retracted ones need to return. Negative if there are too few.
    allocatable: i64,
    /// Slots that retracting all running requests would free.
    retractable: i64,
    /// SGLang's `--num-reserved-decode-tokens`.
    reserved_decode_tokens: usize,
}

/// What [`Headroom`] is computed from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    pub(crate) available: usize,
    /// Requests that are running, arriving or waiting to run.
    pub(crate) num_reqs: usize,
    pub(crate) retractable: usize,
    /// Prompt and clipped answer of the largest running request.
    pub(crate) largest: usize,
    /// Tokens of retracted requests, with what is reserved for each.
    pub(crate) retracted: usize,
    pub(crate) reserved_decode_tokens: usize,
}

// === impl Headroom ===

impl Headroom {
    pub(crate) fn new(demand: Demand) -> Self {
        let retractable = to_i64(demand.retractable);
        let next_tokens = to_i64(demand.reserved_decode_tokens * demand.num_reqs);
        let largest_alone = to_i64(demand.largest) - retractable;
        let kept = next_tokens.max(largest_alone) + to_i64(demand.retracted);
        Self {
            allocatable: to_i64(demand.available) - kept,
            retractable,
            reserved_decode_tokens: demand.reserved_decode_tokens,
        }
    }

    /// Takes slots for a request of `len` tokens whose answer may still get `remaining_len`, if it
    /// fits now, and could finish if all others were retracted.
    pub(crate) fn try_take(&mut self, len: usize, remaining_len: usize) -> bool {
        let now = to_i64(len + self.reserved_decode_tokens.min(remaining_len));
        let at_last = to_i64(len + remaining_len.min(CLIP_MAX_NEW_TOKENS)) - self.retractable;
        if now.max(at_last) > self.allocatable {
            return false;
        }
        self.allocatable -= now;
        true
    }
}

// === impl DecodePreallocQueue ===

impl DecodePreallocQueue {
    pub(crate) fn len(&self) -> usize {
        self.reqs.len()
    }

    /// Slots that the waiting requests will need for their prompts.
    pub(crate) fn waiting_tokens(&self) -> usize {
        self.reqs.iter().map(|req| req.prompt_len).sum()
    }

    /// When the first one began to wait.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        Some(self.reqs.front()?.times.received)
    }

    pub(crate) fn push<B: Backend>(
        &mut self,
        resources: &Resources<B>,
        end: &TransferEnd,
        mut req: Req,
    ) {
        let bootstrap = req
            .bootstrap
            .as_ref()
            .expect("submission checks the bootstrap fields");
        let bootstrap_addr = BootstrapAddr {
            host: bootstrap.bootstrap_host.clone(),
            port: bootstrap.bootstrap_port,
        };
        let room = bootstrap.bootstrap_room;
        let request = ReceiverRequest {
            bootstrap_addr,
            room,
            prefill_dp_rank: None,
        };
        match end.manager.receiver(request) {
            Ok(receiver) => {
                req.transfer = Transfer::Receiver(receiver);
                resources.record(&req, stage_now(Stage::DecodeQueued));
                self.reqs.push_back(req);
            }
            Err(error) => {
                resources.metrics.counters.bootstrap_failed_reqs.inc();
                resources.fail(&req, &error.to_string(), false);
            }
        }
    }

    /// Ends the requests whose bootstrap failed.
    pub(crate) fn drop_failed<B: Backend>(
        &mut self,
        resources: &mut Resources<B>,
        fence: &mut Fence,
    ) {
        for mut req in std::mem::take(&mut self.reqs) {
            if req.transfer.poll() == KvPoll::Failed {
                resources.metrics.counters.bootstrap_failed_reqs.inc();
                resources.fail(&req, &req.transfer.failure(), true);
                fence.take(&mut req, &mut resources.cache);
            } else {
                self.reqs.push_back(req);
            }
        }
    }

    /// Removes the requests that have got pages; their KV may arrive.
    pub(crate) fn pop_preallocated<B: Backend>(
        &mut self,
        resources: &mut Resources<B>,
        end: &mut TransferEnd,
        mut headroom: Headroom,
    ) -> Vec<Req> {
        let mut preallocated = Vec::new();
        while let Some(place) = self.reqs.iter().position(knows_prefill) {
            let req = &self.reqs[place];
            if end.metadata_rows.available() == 0
                || !headroom.try_take(req.prompt_len, req.remaining_len())
            {
                break;
            }
            let Some(kv) = resources.cache.begin_received(req.prompt_len) else {
                break;
            };
            let mut req = self.reqs.remove(place).expect("the place was found above");
            let pages = resources.cache.req_to_token().pages(kv.idx);
            let pages: Vec<u32> = pages.iter().map(|page| page.0).collect();
            req.kv = Some(kv);
            let index = end
                .metadata_rows
                .alloc()
                .expect("a row was available above");
            end.metadata
                .clear_row(index)
                .expect("every index of the allocator has a row");
            req.metadata_buffer_index = Some(index);
            let Transfer::Receiver(receiver) = &req.transfer else {
                unreachable!("queued with a receiver");
            };
            receiver.init(&pages, index, &[]);
            let waited = req.times.received.elapsed().as_secs_f64();
            resources.metrics.histograms.bootstrap_time.observe(waited);
            resources.record(&req, stage_now(Stage::DecodePreallocated));
            preallocated.push(req);
        }
        preallocated
    }

    pub(crate) fn take(&mut self, id: RequestId) -> Option<Req> {
        let place = self.reqs.iter().position(|req| req.id == id)?;
        self.reqs.remove(place)
    }

    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Req> {
        std::mem::take(&mut self.reqs).into_iter()
    }
}

fn knows_prefill(req: &Req) -> bool {
    matches!(req.transfer.poll(), KvPoll::WaitingForInput)
}

fn to_i64(len: usize) -> i64 {
    i64::try_from(len).expect("a pool has fewer than 2^63 slots")
}

#[cfg(test)]
mod tests;
