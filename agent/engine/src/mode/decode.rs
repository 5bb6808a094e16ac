//! `Decode`: receives computed prompts and produces the rest of their answers.
//!
//! Life of a request:
//! 1. `decode_prealloc_queue`: until prefill is found and there is memory for what is not cached of its KV.
//! 2. `decode_transfer_queue`: until its KV and first token are here.
//! 3. Its first token is sent to the reader; if that ends the answer, it never takes a step.
//! 4. Arrived: until a running slot is free. No prompt is computed here.
//! 5. `RunningBatch`: one token per step. When pages run out, the request with the least progress
//!    is copied to host memory; it returns, before any new request, when there is space.

use super::Mode;
use crate::active::Active;
use crate::command::RequestId;
use crate::disaggregation::TransferEnd;
use crate::disaggregation::decode_prealloc_queue::DecodePreallocQueue;
use crate::disaggregation::decode_transfer_queue::DecodeTransferQueue;
use crate::disaggregation::fence::Fence;
use crate::disaggregation::headroom::{Demand, Headroom};
use crate::kvcache::spaces::PerSpace;
use crate::observe::Point;
use crate::queues::QueueSizes;
use crate::ranks::HostKv;
use crate::req::Req;
use crate::request::TokenLogprob;
use crate::resources::Resources;
use crate::schedule::CLIP_MAX_NEW_TOKENS;
use crate::schedule::running::RunningBatch;
use crate::step::{Sampled, Settled, Step, StepPlan};
use std::collections::VecDeque;

pub(crate) struct Decode {
    limits: DecodeLimits,
    end: TransferEnd,
    prealloc: DecodePreallocQueue,
    transfer: DecodeTransferQueue,
    arrived: VecDeque<Active>,
    running: RunningBatch,
    retracted: VecDeque<Retracted>,
    fence: Fence,
    steps_since_poll: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct DecodeLimits {
    pub(crate) reserved_decode_tokens: usize,
    /// Steps between two polls of the transfers.
    pub(crate) polling_interval: u32,
    pub(crate) vocab_size: u32,
    /// Rows, over all requests, that compute drafts.
    pub(crate) draft_rows: usize,
}

/// A request without pages, its KV in host memory.
struct Retracted {
    req: Req,
    host: HostKv,
    kv_len: usize,
    is_private: bool,
}

// === impl Decode ===

impl Decode {
    pub(crate) fn new(limits: DecodeLimits, end: TransferEnd) -> Self {
        Self {
            limits,
            end,
            prealloc: DecodePreallocQueue::default(),
            transfer: DecodeTransferQueue::default(),
            arrived: VecDeque::new(),
            running: RunningBatch::default(),
            retracted: VecDeque::new(),
            fence: Fence::default(),
            steps_since_poll: 0,
        }
    }

    fn headroom(&self, resources: &Resources, retracted: PerSpace) -> Headroom {
        let spaces = resources.cache.spaces();
        let largest =
            |req: &Req| req.prompt_len + (req.len_max - req.prompt_len).min(CLIP_MAX_NEW_TOKENS);
        let largest = |req| spaces.tokens(largest(req));
        let reserved_decode_tokens = self.limits.reserved_decode_tokens;
        let arrived = self.arrived.iter().map(|active| &active.req);
        let reqs = self
            .running
            .iter()
            .chain(arrived)
            .chain(self.transfer.iter());
        let next = reqs.map(|req| spaces.growth(req.tokens.len(), reserved_decode_tokens, 0));
        let running = self.running.actives();
        let retractable = running.map(|active| (&active.kv, active.req.tokens.len()));
        let demand = Demand {
            available: resources.cache.available_tokens(),
            next_tokens: next.sum(),
            retractable: resources.cache.held_tokens(retractable),
            largest: self
                .running
                .iter()
                .map(largest)
                .fold(PerSpace::default(), PerSpace::max),
            retracted,
            reserved_decode_tokens,
        };
        Headroom::new(spaces, demand)
    }

    /// Brings requests back from host memory, oldest retraction first and before new requests.
    fn resume_retracted(&mut self, resources: &mut Resources) {
        while let Some(first) = self.retracted.front() {
            let mut headroom = self.headroom(resources, PerSpace::default());
            let alone =
                self.running.is_empty() && self.arrived.is_empty() && self.transfer.len() == 0;
            let len = first.req.tokens.len();
            if !alone && !headroom.try_take(len, 0, first.req.remaining_len()) {
                return;
            }
            let Some(mut kv) = resources.cache.begin_received(&[], first.kv_len) else {
                return;
            };
            if !resources.cache.try_extend(&kv, len) {
                resources.cache.discard(kv);
                return;
            }
            let first = self.retracted.pop_front();
            let Retracted {
                req,
                host,
                kv_len,
                is_private,
            } = first.expect("the front was seen above");
            kv.received(kv_len);
            if is_private {
                kv.keep_private();
            }
            let places = resources.cache.places(&kv);
            if let Err(error) = resources.ranks.reload(host, &places) {
                resources.cache.discard(kv);
                resources.recorder.fail(&req, &error.to_string(), true);
                continue;
            }
            self.arrived.push_front(Active::new(req, kv, ()));
        }
    }

    fn preallocate(&mut self, resources: &mut Resources) {
        let spaces = resources.cache.spaces();
        let kept =
            |r: &Retracted| spaces.tokens(r.req.tokens.len() + self.limits.reserved_decode_tokens);
        let retracted = self.retracted.iter().map(kept).sum();
        let headroom = self.headroom(resources, retracted);
        let (end, transfer) = (&mut self.end, &self.transfer);
        let preallocated = self
            .prealloc
            .pop_preallocated(resources, end, transfer, headroom);
        for arriving in preallocated {
            self.transfer.push(arriving);
        }
    }

    /// SGLang's `process_prebuilt`: the request continues as if its prompt had been computed here.
    fn receive_first_token(
        &mut self,
        resources: &mut Resources,
        mut active: Active,
        first: TokenLogprob,
    ) {
        let pages = resources.cache.page_ids(&active.kv).len();
        resources.observe_pages(
            &active.req,
            &active.kv,
            0..pages,
            active.kv.slot(),
            Point::AfterRestore,
        );
        if first.token >= self.limits.vocab_size {
            let reason = format!(
                "prefill's first token {} is not in the vocabulary",
                first.token
            );
            resources.recorder.fail(&active.req, &reason, true);
            resources.cache.discard(active.kv);
            return;
        }
        if !active.req.moves_nothing() {
            resources.commit_kv(&mut active);
        }
        if resources.answer(&mut active.req, first) {
            resources.end(active);
        } else {
            self.arrived.push_back(active);
        }
    }

    /// Copies pages of requests to host memory, least progress first, until the others can
    /// continue.
    fn retract(&mut self, resources: &mut Resources) {
        while let Some(Active { req, kv, .. }) = self.running.pop_victim(&resources.cache) {
            let (kv_len, is_private) = (kv.len, kv.is_private());
            let places = resources.cache.places(&kv);
            let offloaded = resources.ranks.offload(&places);
            resources.cache.discard(kv);
            match offloaded {
                Ok(host) => {
                    resources.recorder.retraction(&req);
                    self.retracted.push_back(Retracted {
                        req,
                        host,
                        kv_len,
                        is_private,
                    });
                }
                Err(error) => {
                    let reason = format!("out of KV pages, and of host memory: {error}");
                    resources.recorder.fail(&req, &reason, true);
                }
            }
        }
    }

    fn run_arrived(&mut self, resources: &mut Resources) {
        while let Some(active) = self.arrived.front() {
            if !resources.cache.try_promote(&active.kv) {
                return;
            }
            self.running.extend(self.arrived.pop_front());
        }
    }

    /// Removes the request if its KV is here.
    fn take_active(&mut self, id: RequestId) -> Option<Active> {
        let place = self.arrived.iter().position(|active| active.req.id == id);
        match place {
            Some(place) => self.arrived.remove(place),
            None => self.running.take(id),
        }
    }

    fn take_retracted(&mut self, id: RequestId) -> Option<Retracted> {
        let place = self.retracted.iter().position(|r| r.req.id == id)?;
        self.retracted.remove(place)
    }
}

impl Mode for Decode {
    fn admit(&mut self, resources: &mut Resources, req: Req) {
        self.prealloc.push(&resources.recorder, &self.end, req);
    }

    fn abort(&mut self, resources: &mut Resources, id: RequestId) {
        if let Some(waiting) = self.prealloc.take(id) {
            resources.recorder.abort(&waiting.req);
            self.fence.take_transfer(waiting.receiver.into());
        } else if let Some(arriving) = self.transfer.take(id) {
            resources.recorder.abort(&arriving.req);
            arriving.fence(&mut self.fence, &mut resources.cache);
        } else if let Some(active) = self.take_active(id) {
            resources.recorder.abort(&active.req);
            resources.release(active);
        } else if let Some(retracted) = self.take_retracted(id) {
            resources.recorder.abort(&retracted.req);
            resources.ranks.forget(retracted.host);
        }
    }

    fn abort_all(&mut self, resources: &mut Resources, reason: &str) {
        for waiting in self.prealloc.take_all() {
            resources.recorder.fail(&waiting.req, reason, true);
            self.fence.take_transfer(waiting.receiver.into());
        }
        for arriving in self.transfer.take_all() {
            resources.recorder.fail(&arriving.req, reason, true);
            arriving.fence(&mut self.fence, &mut resources.cache);
        }
        for active in self.arrived.drain(..).chain(self.running.take_all()) {
            resources.recorder.fail(&active.req, reason, true);
            resources.release(active);
        }
        for retracted in self.retracted.drain(..) {
            resources.recorder.fail(&retracted.req, reason, true);
            resources.ranks.forget(retracted.host);
        }
    }

    fn advance(&mut self, resources: &mut Resources) {
        let due = self.running.is_empty() || self.steps_since_poll >= self.limits.polling_interval;
        if due {
            self.steps_since_poll = 0;
            let ended = resources.ended();
            self.fence
                .sweep(&mut resources.cache, &mut self.end.metadata_rows, ended);
            let (end, fence) = (&mut self.end, &mut self.fence);
            self.prealloc.drop_failed(&resources.recorder, fence);
            for (active, first) in self.transfer.pop_transferred(resources, end, fence) {
                self.receive_first_token(resources, active, first);
            }
        }
        self.resume_retracted(resources);
        if due && self.retracted.is_empty() {
            self.preallocate(resources);
        }
    }

    fn schedule(&mut self, resources: &mut Resources) -> Option<(Step, StepPlan)> {
        self.run_arrived(resources);
        let must_wait = self.running.needs_outcome() || self.running.is_short(&resources.cache);
        if must_wait && !resources.is_idle() {
            return None;
        }
        self.retract(resources);
        self.running.reserve(&mut resources.cache);
        self.running.push_rows(resources, self.limits.draft_rows);
        resources.step.finish()
    }

    fn settle(&mut self, resources: &mut Resources, settled: Settled) {
        self.steps_since_poll += 1;
        for (row, output) in settled.rows {
            let Some(active) = self.running.get_mut(row.id) else {
                continue;
            };
            if active.req.output_len() == 1 {
                let recorder = &resources.recorder;
                recorder.first_step(&active.req, &row, settled.duration);
            }
            let (tokens, is_finite) =
                match resources.computed(active, &row, output, settled.duration) {
                    Sampled::NotYet => unreachable!("a decode step samples for every request"),
                    Sampled::NotFinite(before) => (before, false),
                    Sampled::Tokens(tokens) => (tokens, true),
                };
            let goes_on = resources.answer_all(active, tokens);
            if goes_on && is_finite {
                continue;
            }
            let active = self.running.take(row.id).expect("it was found above");
            if goes_on {
                resources.fail_not_finite(active);
            } else {
                resources.end(active);
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
