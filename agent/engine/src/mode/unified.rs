//! `Unified`: the schedule of an engine that computes prompts and answers (mode `null`).
//!
//! Life of a request:
//! 1. It waits until its prompt and its expected answer fit into memory (`prefill`).
//! 2. Its prompt is computed, whole or in chunks, in the same steps as the running requests' next
//!    tokens, so that neither waits for the other. Full pages are cached for later requests.
//! 3. It runs until it stops. If memory runs out before, it gives up its pages, waits in front, and
//!    is recomputed from what is still cached.

use super::Mode;
use crate::active::Active;
use crate::command::RequestId;
use crate::observe::Point;
use crate::queues::QueueSizes;
use crate::req::Req;
use crate::request::TokenLogprob;
use crate::resources::Resources;
use crate::schedule::ScheduleLimits;
use crate::schedule::computing::Computing;
use crate::schedule::new_token_ratio::NewTokenRatio;
use crate::schedule::prefill::{PrefillScheduler, Taken};
use crate::schedule::prefill_adder::PrefillAdder;
use crate::schedule::running::RunningBatch;
use crate::step::{Sampled, Settled, Step, StepPlan, StepRow};

#[derive(Debug)]
pub(crate) struct Unified {
    limits: ScheduleLimits,
    prefill: PrefillScheduler,
    /// Those whose last chunk is in flight, too.
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
    fn retract(&mut self, resources: &mut Resources) {
        let mut retracted = false;
        while let Some(active) = self.running.pop_victim(&resources.cache) {
            let req = resources.release(active);
            resources.recorder.retraction(&req);
            self.prefill.push_front(req, ());
            retracted = true;
        }
        if retracted {
            self.ratio.raise(self.running.iter());
        } else if self.running.goes_on() {
            self.ratio.decay();
        }
    }

    fn active_mut(&mut self, id: RequestId) -> Option<&mut Active> {
        match self.prefill.chunked_mut(id) {
            Some(active) => Some(active),
            None => self.running.get_mut(id),
        }
    }

    /// The request of the row, which stays in its queue, has got tokens; `false` if it ends with one of them.
    fn take_tokens(
        &mut self,
        resources: &mut Resources,
        row: &StepRow,
        tokens: Vec<TokenLogprob>,
    ) -> bool {
        let active = self.running.get_mut(row.id);
        let active = active.expect("a request whose last token is computed runs");
        if !row.is_decode() || active.req.output_len() == 0 {
            resources.commit_kv(active);
        }
        if active.req.output_len() == 0 {
            let pages = 0..active.kv.len.div_ceil(resources.cache.page_size());
            let Active { req, kv, .. } = &*active;
            resources.observe_pages(req, kv, pages, kv.slot(), Point::Computed);
        }
        let goes_on = resources.answer_all(active, tokens);
        if !goes_on {
            resources.end(self.running.take(row.id).expect("it was found above"));
        }
        goes_on
    }
}

impl Mode for Unified {
    fn admit(&mut self, _resources: &mut Resources, req: Req) {
        self.prefill.push_back(req, ());
    }

    fn abort(&mut self, resources: &mut Resources, id: RequestId) {
        let running = || self.running.take(id).map(Taken::Begun);
        if let Some(taken) = self.prefill.take(id).or_else(running) {
            resources.recorder.abort(taken.req());
            if let Taken::Begun(active) = taken {
                resources.release(active);
            }
        }
    }

    fn abort_all(&mut self, resources: &mut Resources, reason: &str) {
        let running = self.running.take_all().into_iter().map(Taken::Begun);
        for taken in self
            .prefill
            .take_if(|_, ()| true)
            .into_iter()
            .chain(running)
        {
            resources.recorder.fail(taken.req(), reason, true);
            if let Taken::Begun(active) = taken {
                resources.release(active);
            }
        }
    }

    fn advance(&mut self, _resources: &mut Resources) {}

    fn schedule(&mut self, resources: &mut Resources) -> Option<(Step, StepPlan)> {
        let must_wait = self.running.needs_outcome() || self.running.is_short(&resources.cache);
        if must_wait && !resources.is_idle() {
            return None;
        }
        self.retract(resources);
        let Resources { cache, step, .. } = resources;
        let spaces = cache.spaces();
        let promised = self.running.actives().map(|Active { req, kv, .. }| {
            let expected = self.ratio.expected_len(req);
            spaces.growth(req.tokens.len(), expected, cache.shared_window(kv))
        });
        let promised = promised.sum();
        self.running.reserve(cache);
        let rows = self.running.going_on_len();
        let adder = PrefillAdder::new(&self.limits, spaces, promised, rows);
        // Before drafts, which take what is left.
        let computing = Computing::of(self.running.actives());
        let whole = self.prefill.push_rows(cache, step, adder, &computing);
        self.running.push_rows(resources, self.limits.draft_rows);
        self.running.extend(whole);
        resources.step.finish()
    }

    fn settle(&mut self, resources: &mut Resources, settled: Settled) {
        for (row, output) in settled.rows {
            let Some(active) = self.active_mut(row.id) else {
                continue;
            };
            match resources.computed(active, &row, output, settled.duration) {
                Sampled::NotYet => {}
                Sampled::NotFinite(before) => {
                    if before.is_empty() || self.take_tokens(resources, &row, before) {
                        let active = self.running.take(row.id);
                        resources.fail_not_finite(active.expect("a request that draws runs"));
                    }
                }
                Sampled::Tokens(tokens) => {
                    self.take_tokens(resources, &row, tokens);
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
