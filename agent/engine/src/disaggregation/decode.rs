//! `Decode`: receives computed prompts and produces the rest of their answers.
//!
//! Life of a request:
//! 1. `decode_prealloc_queue`: until prefill is found and there is memory for its KV.
//! 2. `decode_transfer_queue`: until its KV and first token are here.
//! 3. Its first token is sent to the reader; if that ends the answer, it never takes a step.
//! 4. Arrived: until a running slot is free. No prompt is computed here.
//! 5. `RunningBatch`: one token per step. When pages run out, the request with the least progress
//!    is copied to host memory; it returns, before any new request, when there is space.

use super::TransferEnd;
use super::decode_prealloc_queue::{DecodePreallocQueue, Demand, Headroom};
use super::decode_transfer_queue::DecodeTransferQueue;
use super::fence::Fence;
use crate::batch::{Batch, RowOutput, Sampled};
use crate::engine::{RequestId, TokenLogprob};
use crate::event_loop::{Mode, QueueSizes};
use crate::model_runner::OffloadedKv;
use crate::req::Req;
use crate::resources::Resources;
use crate::schedule::CLIP_MAX_NEW_TOKENS;
use crate::schedule::decode::RunningBatch;
use pd_compute::Backend;
use std::collections::VecDeque;

pub(crate) struct Decode<B: Backend> {
    limits: DecodeLimits,
    end: TransferEnd,
    prealloc: DecodePreallocQueue,
    transfer: DecodeTransferQueue,
    arrived: VecDeque<Req>,
    /// All running slots were taken when the last step was scheduled, and still are.
    is_full: bool,
    running: RunningBatch,
    retracted: VecDeque<Retracted<B>>,
    fence: Fence,
    steps_since_poll: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct DecodeLimits {
    pub(crate) reserved_decode_tokens: usize,
    /// Steps between two polls of the transfers.
    pub(crate) polling_interval: u32,
    pub(crate) vocab_size: u32,
}

/// A request without pages, its KV in host memory.
struct Retracted<B: Backend> {
    req: Req,
    offloaded: OffloadedKv<B>,
    kv_len: usize,
}

// === impl Decode ===

impl<B: Backend> Decode<B> {
    pub(crate) fn new(limits: DecodeLimits, end: TransferEnd) -> Self {
        Self {
            limits,
            end,
            prealloc: DecodePreallocQueue::default(),
            transfer: DecodeTransferQueue::default(),
            arrived: VecDeque::new(),
            is_full: false,
            running: RunningBatch::default(),
            retracted: VecDeque::new(),
            fence: Fence::default(),
            steps_since_poll: 0,
        }
    }

    fn headroom(&self, resources: &Resources<B>, retracted: usize) -> Headroom {
        let largest =
            |req: &Req| req.prompt_len + (req.len_max - req.prompt_len).min(CLIP_MAX_NEW_TOKENS);
        Headroom::new(Demand {
            available: resources.cache.available_tokens(),
            num_reqs: self.running.len() + self.transfer.len() + self.arrived.len(),
            retractable: self.running.iter().map(|req| req.tokens.len()).sum(),
            largest: self.running.iter().map(largest).max().unwrap_or(0),
            retracted,
            reserved_decode_tokens: self.limits.reserved_decode_tokens,
        })
    }

    /// Brings requests back from host memory, oldest retraction first and before new requests.
    fn resume_retracted(&mut self, resources: &mut Resources<B>) {
        while let Some(first) = self.retracted.front() {
            let mut headroom = self.headroom(resources, 0);
            let alone =
                self.running.is_empty() && self.arrived.is_empty() && self.transfer.len() == 0;
            let len = first.req.tokens.len();
            if !alone && !headroom.try_take(len, first.req.remaining_len()) {
                return;
            }
            let Some(mut kv) = resources.cache.begin_received(len) else {
                return;
            };
            let Retracted {
                mut req,
                offloaded,
                kv_len,
            } = self
                .retracted
                .pop_front()
                .expect("the front was seen above");
            let held = kv_len.div_ceil(resources.cache.page_size());
            let pages = &resources.cache.req_to_token().pages(kv.idx)[..held];
            if let Err(error) = resources.runner.reload(pages, &offloaded) {
                resources.cache.discard(kv);
                resources.fail(&req, &error.to_string(), true);
                continue;
            }
            kv.len = kv_len;
            req.kv = Some(kv);
            self.arrived.push_front(req);
        }
    }

    fn preallocate(&mut self, resources: &mut Resources<B>) {
        let kept = |r: &Retracted<B>| r.req.tokens.len() + self.limits.reserved_decode_tokens;
        let retracted = self.retracted.iter().map(kept).sum();
        let headroom = self.headroom(resources, retracted);
        for req in self
            .prealloc
            .pop_preallocated(resources, &mut self.end, headroom)
        {
            self.transfer.push(req);
        }
    }

    /// SGLang's `process_prebuilt`: the request continues as if its prompt had been computed here.
    fn receive_first_token(
        &mut self,
        resources: &mut Resources<B>,
        mut req: Req,
        first: TokenLogprob,
    ) {
        if first.token >= self.limits.vocab_size {
            let reason = format!(
                "prefill's first token {} is not in the vocabulary",
                first.token
            );
            resources.release_kv(&mut req);
            return resources.fail(&req, &reason, true);
        }
        let finish = resources.take_token(&mut req, first.token);
        let ended = finish.is_some();
        req.emit(first, finish);
        if ended {
            resources.end(req);
        } else {
            self.arrived.push_back(req);
        }
    }

    /// Copies pages of requests to host memory, least progress first, until the others can
    /// continue.
    fn retract(&mut self, resources: &mut Resources<B>) {
        while let Some(mut req) = self.running.pop_victim(&resources.cache) {
            let kv = req.kv.take().expect("a running request holds pages");
            let kv_len = kv.len;
            let held = kv_len.div_ceil(resources.cache.page_size());
            let pages = &resources.cache.req_to_token().pages(kv.idx)[..held];
            let offloaded = resources.runner.offload(pages);
            resources.cache.discard(kv);
            match offloaded {
                Ok(offloaded) => {
                    resources.note_retraction(&req);
                    self.retracted.push_back(Retracted {
                        req,
                        offloaded,
                        kv_len,
                    });
                }
                Err(error) => {
                    let reason = format!("out of KV pages, and of host memory: {error}");
                    resources.fail(&req, &reason, true);
                }
            }
        }
    }

    fn run_arrived(&mut self, resources: &mut Resources<B>) {
        while let Some(req) = self.arrived.front() {
            let kv = req.kv.as_ref().expect("an arrived request holds pages");
            if !resources.cache.try_promote(kv) {
                return;
            }
            self.running.extend(self.arrived.pop_front());
        }
    }

    fn take(&mut self, id: RequestId) -> Option<Req> {
        if let Some(place) = self.arrived.iter().position(|req| req.id == id) {
            return self.arrived.remove(place);
        }
        if let Some(place) = self
            .retracted
            .iter()
            .position(|retracted| retracted.req.id == id)
        {
            return self.retracted.remove(place).map(|retracted| retracted.req);
        }
        let queued = self.prealloc.take(id).or_else(|| self.transfer.take(id));
        queued.or_else(|| self.running.take(id))
    }

    /// Frees the request's memory, immediately or once no peer can touch it.
    fn drop_memory(&mut self, resources: &mut Resources<B>, req: &mut Req) {
        if req.transfer.poll().is_terminal() && req.transfer.released() {
            resources.release_kv(req);
            if let Some(index) = req.metadata_buffer_index.take() {
                self.end.metadata_rows.free(index);
            }
        } else {
            self.fence.take(req, &mut resources.cache);
        }
    }
}

impl<B: Backend> Mode<B> for Decode<B> {
    fn admit(&mut self, resources: &mut Resources<B>, req: Req) {
        self.prealloc.push(resources, &self.end, req);
    }

    fn abort(&mut self, resources: &mut Resources<B>, id: RequestId) {
        if let Some(mut req) = self.take(id) {
            self.is_full = false;
            resources.record_abort(&req);
            self.drop_memory(resources, &mut req);
        }
    }

    fn abort_all(&mut self, resources: &mut Resources<B>, reason: &str) {
        let mut all: Vec<_> = self
            .prealloc
            .take_all()
            .chain(self.transfer.take_all())
            .collect();
        all.extend(self.arrived.drain(..).chain(self.running.take_all()));
        all.extend(self.retracted.drain(..).map(|retracted| retracted.req));
        for mut req in all {
            resources.fail(&req, reason, true);
            self.drop_memory(resources, &mut req);
        }
    }

    fn advance(&mut self, resources: &mut Resources<B>) {
        let due = self.running.is_empty() || self.steps_since_poll >= self.limits.polling_interval;
        if due {
            self.steps_since_poll = 0;
            self.fence
                .sweep(&mut resources.cache, &mut self.end.metadata_rows);
            self.prealloc.drop_failed(resources, &mut self.fence);
            let (end, fence) = (&mut self.end, &mut self.fence);
            for (req, first) in self.transfer.pop_transferred(resources, end, fence) {
                self.receive_first_token(resources, req, first);
            }
        }
        self.resume_retracted(resources);
        if due && self.retracted.is_empty() {
            self.preallocate(resources);
        }
    }

    fn schedule(&mut self, resources: &mut Resources<B>) -> Batch {
        self.run_arrived(resources);
        self.is_full = !self.arrived.is_empty();
        self.retract(resources);
        Batch {
            rows: self.running.next_rows(&mut resources.cache),
        }
    }

    fn is_steady(&self) -> bool {
        self.is_full || self.arrived.is_empty()
    }

    fn resume(&mut self, ids: &mut dyn Iterator<Item = RequestId>) -> Batch {
        self.running.resume(ids)
    }

    fn settle(&mut self, resources: &mut Resources<B>, batch: Batch, outputs: Vec<RowOutput>) {
        self.steps_since_poll += 1;
        for (row, output) in batch.rows.into_iter().zip(outputs) {
            let mut req = resources.advance_kv_len(row, output.prompt_logprobs);
            match output.sampled {
                Sampled::NotYet => unreachable!("a decode step samples for every request"),
                Sampled::NotFinite => {
                    resources.fail_not_finite(req);
                    self.is_full = false;
                }
                Sampled::Token(sampled) => {
                    let finish = resources.take_token(&mut req, sampled.token);
                    let ended = finish.is_some();
                    req.emit(sampled, finish);
                    if ended {
                        resources.end(req);
                        self.is_full = false;
                    } else {
                        self.running.push(req);
                    }
                }
            }
        }
    }

    fn queues(&self) -> QueueSizes {
        let retracted = self.retracted.iter().map(|r| r.req.tokens.len());
        QueueSizes {
            running: self.running.len(),
            waiting: self.arrived.len(),
            waiting_tokens: self.prealloc.waiting_tokens() + retracted.sum::<usize>(),
            oldest: self.prealloc.oldest(),
            retracted: self.retracted.len(),
            prealloc: self.prealloc.len(),
            transfer: self.transfer.len(),
            prealloc_tokens: self.transfer.prealloc_tokens(),
            fenced: self.fence.len(),
            metadata_rows_used: self.end.rows_used(),
            metadata_rows_total: self.end.metadata_rows.total() as usize,
            ..QueueSizes::default()
        }
    }
}
