//! `Prefill`: computes prompts and their first token, and sends the KV to decode.
//!
//! Life of a request:
//! 1. `prefill_bootstrap_queue`: until decode has sent its destination pages.
//! 2. `PrefillScheduler`: its prompt is computed, whole or in chunks; after each chunk its full
//!    pages are sent while the next is computed. It ends after one token: `admit` bounds its length.
//! 3. Last chunk: it is in flight, and draws the first token.
//! 4. The rest is sent, and the metadata row with the first token.
//! 5. `prefill_inflight_queue`: until decode reports that it has everything. Then the leg is answered
//!    and its memory freed.

use super::Mode;
use crate::active::Active;
use crate::command::RequestId;
use crate::disaggregation::TransferEnd;
use crate::disaggregation::fence::Fence;
use crate::disaggregation::outgoing::{Outgoing, send_full_pages, send_rest};
use crate::disaggregation::prefill_bootstrap_queue::PrefillBootstrapQueue;
use crate::disaggregation::prefill_inflight_queue::{Inflight, PrefillInflightQueue};
use crate::kvcache::spaces::PerSpace;
use crate::queues::QueueSizes;
use crate::req::Req;
use crate::request::{FinishReason, TokenLogprob};
use crate::resources::Resources;
use crate::schedule::ScheduleLimits;
use crate::schedule::computing::Computing;
use crate::schedule::prefill::{PrefillScheduler, Taken};
use crate::schedule::prefill_adder::PrefillAdder;
use crate::step::{Sampled, Settled, Step, StepPlan};
use pd_protocol::KvPoll;
use std::time::Instant;

pub(crate) struct Prefill {
    limits: ScheduleLimits,
    end: TransferEnd,
    bootstrap: PrefillBootstrapQueue,
    scheduler: PrefillScheduler<Outgoing>,
    last_chunk: Vec<Active<Outgoing>>,
    inflight: PrefillInflightQueue,
    fence: Fence,
}

// === impl Prefill ===

impl Prefill {
    pub(crate) fn new(limits: ScheduleLimits, end: TransferEnd) -> Self {
        Self {
            limits,
            end,
            bootstrap: PrefillBootstrapQueue::default(),
            scheduler: PrefillScheduler::default(),
            last_chunk: Vec::new(),
            inflight: PrefillInflightQueue::default(),
            fence: Fence::default(),
        }
    }

    /// Removes the requests for which `gone` holds before their prompt is computed.
    fn take_if(&mut self, gone: impl Fn(&Req, &Outgoing) -> bool) -> Vec<Taken<Outgoing>> {
        let mut taken = self.scheduler.take_if(&gone);
        let last_chunk = self
            .last_chunk
            .extract_if(.., |active| gone(&active.req, &active.with));
        taken.extend(last_chunk.map(Taken::Begun));
        taken
    }

    /// Holds what the transfer of an ended request may still touch.
    fn fence(&mut self, resources: &mut Resources, taken: Taken<Outgoing>) {
        match taken {
            Taken::Waiting(waiting) => self.fence.take_sender(waiting.with),
            Taken::Begun(active) => self.fence.take_active(active, &mut resources.cache),
        }
    }

    /// Requests whose decode side gave up before they were computed.
    fn drop_failed(&mut self, resources: &mut Resources) {
        for taken in self.take_if(|_, outgoing| outgoing.sender.poll() == KvPoll::Failed) {
            let reason = taken.with().failure();
            resources.recorder.fail_transfer(taken.req(), &reason);
            self.fence(resources, taken);
        }
    }

    fn take_last_chunk(&mut self, id: RequestId) -> Active<Outgoing> {
        let place = self.last_chunk.iter().position(|a| a.req.id == id);
        let place = place.expect("a request that draws is in its last chunk");
        self.last_chunk.remove(place)
    }

    /// The prompt is computed: sends the rest, with the first token.
    fn send_last(
        &mut self,
        resources: &mut Resources,
        id: RequestId,
        first: TokenLogprob,
        draft_state: Vec<u8>,
    ) {
        let mut active = self.take_last_chunk(id);
        let finish = resources.take_token(&mut active.req, first.token);
        send_rest(&self.end, resources, &mut active, &first, draft_state);
        resources.commit_kv(&mut active);
        self.inflight.push(Inflight {
            active,
            first,
            finish: finish.unwrap_or(FinishReason::Length),
            since: Instant::now(),
        });
    }
}

impl Mode for Prefill {
    fn admit(&mut self, resources: &mut Resources, mut req: Req) {
        req.len_max = req.prompt_len + 1;
        self.bootstrap.push(&resources.recorder, &self.end, req);
    }

    fn abort(&mut self, resources: &mut Resources, id: RequestId) {
        if let Some((req, sender)) = self.bootstrap.take(id) {
            resources.recorder.abort(&req);
            self.fence.take_transfer(sender.into());
            return;
        }
        let computed = |inflight: Inflight| Taken::Begun(inflight.active);
        let taken = self.take_if(|req, _| req.id == id).pop();
        if let Some(taken) = taken.or_else(|| self.inflight.take(id).map(computed)) {
            resources.recorder.abort(taken.req());
            self.fence(resources, taken);
        }
    }

    fn abort_all(&mut self, resources: &mut Resources, reason: &str) {
        for (req, sender) in self.bootstrap.take_all() {
            resources.recorder.fail(&req, reason, true);
            self.fence.take_transfer(sender.into());
        }
        let mut taken = self.take_if(|_, _| true);
        let inflight = self.inflight.take_all();
        taken.extend(inflight.map(|inflight| Taken::Begun(inflight.active)));
        for taken in taken {
            resources.recorder.fail(taken.req(), reason, true);
            self.fence(resources, taken);
        }
    }

    fn advance(&mut self, resources: &mut Resources) {
        let ended = resources.ended();
        self.fence
            .sweep(&mut resources.cache, &mut self.end.metadata_rows, ended);
        self.inflight
            .pop_done(resources, &mut self.end, &mut self.fence);
        self.drop_failed(resources);
        let (end, fence) = (&mut self.end, &mut self.fence);
        for (req, outgoing) in self.bootstrap.pop_bootstrapped(resources, end, fence) {
            self.scheduler.push_back(req, outgoing);
        }
    }

    fn schedule(&mut self, resources: &mut Resources) -> Option<(Step, StepPlan)> {
        let Resources { cache, step, .. } = resources;
        let promised = PerSpace::default();
        let adder = PrefillAdder::new(&self.limits, cache.spaces(), promised, 0);
        let computing = Computing::of(&self.last_chunk);
        let whole = self.scheduler.push_rows(cache, step, adder, &computing);
        self.last_chunk.extend(whole);
        step.finish()
    }

    fn settle(&mut self, resources: &mut Resources, settled: Settled) {
        for (row, mut output) in settled.rows {
            let draft_state = std::mem::take(&mut output.draft_state);
            let mut last_chunk = self.last_chunk.iter_mut();
            let active = match self.scheduler.chunked_mut(row.id) {
                Some(active) => active,
                None => match last_chunk.find(|active| active.req.id == row.id) {
                    Some(active) => active,
                    None => continue,
                },
            };
            match resources.computed(active, &row, output, settled.duration) {
                Sampled::NotYet => {
                    send_full_pages(resources, active);
                    resources.chunks_sent(&active.req, &active.with.sender);
                }
                Sampled::NotFinite(_) => {
                    let active = self.take_last_chunk(row.id);
                    let reason = active.req.why_no_token();
                    resources.recorder.fail(&active.req, &reason, false);
                    self.fence.take_active(active, &mut resources.cache);
                }
                Sampled::Tokens(tokens) => {
                    let first = tokens.into_iter().next();
                    let first = first.expect("a row that draws has a token");
                    resources.observe_step(&active.req, &active.kv, first.token);
                    self.send_last(resources, row.id, first, draft_state);
                }
            }
        }
    }

    fn queues(&self) -> QueueSizes {
        QueueSizes {
            waiting: self.scheduler.len() + self.last_chunk.len(),
            waiting_tokens: self.scheduler.waiting_tokens(),
            oldest: self.scheduler.oldest(),
            bootstrap: self.bootstrap.len(),
            inflight: self.inflight.len(),
            fenced: self.fence.len(),
            metadata_rows_used: self.end.rows_used(),
            metadata_rows_total: self.end.metadata_rows.total() as usize,
            ..QueueSizes::default()
        }
    }
}
