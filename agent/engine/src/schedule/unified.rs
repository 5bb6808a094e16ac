//! `Unified`: the schedule of an engine that computes prompts and answers (mode `null`).
//!
//! Life of a request:
//! 1. It waits until its prompt and its expected answer fit into memory (`prefill`).
//! 2. Its prompt is computed, whole or in chunks, in the same steps as the running requests' next
//!    tokens, so that neither waits for the other. Full pages are cached for later requests.
//! 3. It runs until it stops. If memory runs out before, it gives up its pages, waits in front, and
//!    is recomputed from what is still cached.

use super::ScheduleLimits;
use super::decode::RunningBatch;
use super::new_token_ratio::NewTokenRatio;
use super::prefill::PrefillScheduler;
use super::prefill_adder::PrefillAdder;
use crate::batch::{Batch, RowOutput, Sampled};
use crate::engine::RequestId;
use crate::event_loop::{Mode, QueueSizes};
use crate::req::Req;
use crate::resources::Resources;
use pd_compute::Backend;

#[derive(Debug)]
pub(crate) struct Unified {
    limits: ScheduleLimits,
    prefill: PrefillScheduler,
    running: RunningBatch,
    ratio: NewTokenRatio,
}

// === impl Unified ===

impl Unified {
    pub(crate) fn new(limits: ScheduleLimits, schedule_conservativeness: f32) -> Self {
        Self {
            limits,
            prefill: PrefillScheduler::default(),
            running: RunningBatch::default(),
            ratio: NewTokenRatio::new(schedule_conservativeness),
        }
    }

    /// Takes pages from requests, least progress first, until the others can continue.
    fn retract<B: Backend>(&mut self, resources: &mut Resources<B>) {
        let mut retracted = false;
        while let Some(mut req) = self.running.pop_victim(&resources.cache) {
            resources.release_kv(&mut req);
            resources.note_retraction(&req);
            self.prefill.push_front(req);
            retracted = true;
        }
        if retracted {
            self.ratio.raise(self.running.iter());
        } else if !self.running.is_empty() {
            self.ratio.decay();
        }
    }
}

impl<B: Backend> Mode<B> for Unified {
    fn admit(&mut self, _resources: &mut Resources<B>, req: Req) {
        self.prefill.push_back(req);
    }

    fn abort(&mut self, resources: &mut Resources<B>, id: RequestId) {
        if let Some(mut req) = self.prefill.take(id).or_else(|| self.running.take(id)) {
            resources.release_kv(&mut req);
            resources.record_abort(&req);
        }
    }

    fn abort_all(&mut self, resources: &mut Resources<B>, reason: &str) {
        let waiting = self.prefill.take_if(|_| true);
        for mut req in waiting.into_iter().chain(self.running.take_all()) {
            resources.release_kv(&mut req);
            resources.fail(&req, reason, true);
        }
    }

    fn advance(&mut self, _resources: &mut Resources<B>) {}

    fn schedule(&mut self, resources: &mut Resources<B>) -> Batch {
        self.retract(resources);
        let promised = self
            .running
            .iter()
            .map(|req| self.ratio.expected_len(req))
            .sum();
        let cache = &mut resources.cache;
        let mut rows = self.running.next_rows(cache);
        let adder = PrefillAdder::new(&self.limits, cache.page_size(), promised, rows.len());
        rows.extend(self.prefill.next_rows(cache, adder));
        Batch { rows }
    }

    fn is_steady(&self) -> bool {
        self.prefill.len() == 0
    }

    fn resume(&mut self, ids: &mut dyn Iterator<Item = RequestId>) -> Batch {
        let batch = self.running.resume(ids);
        // Its pages were allocated when it was launched.
        if !batch.rows.is_empty() {
            self.ratio.decay();
        }
        batch
    }

    fn settle(&mut self, resources: &mut Resources<B>, batch: Batch, outputs: Vec<RowOutput>) {
        for (row, output) in batch.rows.into_iter().zip(outputs) {
            let was_prefill = row.extend_len > 1 || row.req.output_len() == 0;
            let mut req = resources.advance_kv_len(row, output.prompt_logprobs);
            match output.sampled {
                Sampled::NotYet => self.prefill.set_chunked(req),
                Sampled::NotFinite => resources.fail_not_finite(req),
                Sampled::Token(sampled) => {
                    if was_prefill {
                        resources.commit_kv(&mut req);
                    }
                    let finish = resources.take_token(&mut req, sampled.token);
                    let ended = finish.is_some();
                    req.emit(sampled, finish);
                    if ended {
                        resources.end(req);
                    } else {
                        self.running.push(req);
                    }
                }
            }
        }
    }

    fn queues(&self) -> QueueSizes {
        QueueSizes {
            running: self.running.len(),
            waiting: self.prefill.len(),
            waiting_tokens: self.prefill.waiting_tokens(),
            oldest: self.prefill.oldest(),
            new_token_ratio: self.ratio.get(),
            ..QueueSizes::default()
        }
    }
}
