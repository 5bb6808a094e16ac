//! `Resources`: what all modes share (those who carry out steps, the KV cache, the step being built, the recorder), and
//! what happens to a request in every mode: it is computed, gets a token, ends.

mod observed;

use crate::active::Active;
use crate::kvcache::pool::{KvCache, ReqKv};
use crate::observe::Observing;
use crate::ranks::Ranks;
use crate::recorder::Recorder;
use crate::req::Req;
use crate::request::{FinishReason, TokenLogprob};
use crate::speculate::layer::DraftLayer;
use crate::speculate::model::DraftModel;
use crate::speculate::row_cost::RowCost;
use crate::step::{RowOutput, Sampled, StepBuilder, StepId, StepRow};
use pd_kv_transfer::KvSender;
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Resources {
    pub(crate) ranks: Box<dyn Ranks>,
    pub(crate) cache: KvCache,
    pub(crate) step: StepBuilder,
    pub(crate) recorder: Recorder,
    pub(crate) row_cost: RowCost,
    pub(crate) draft_model: Option<DraftModel>,
    pub(crate) draft_layer: Option<DraftLayer>,
    observing: Observing,
    ended: StepId,
    deferred: Vec<Deferred>,
}

/// KV of a request that ended while a step in flight still computes it. It is returned after that step, because a peer
/// or another request may then write to its pages.
#[derive(Debug)]
struct Deferred {
    until: StepId,
    kv: ReqKv,
    /// Tokens to cache; `None` if the request's KV is worthless.
    tokens: Option<Vec<u32>>,
}

// === impl Resources ===

impl Resources {
    pub(crate) fn new(
        ranks: Box<dyn Ranks>,
        cache: KvCache,
        step: StepBuilder,
        recorder: Recorder,
        observing: Observing,
    ) -> Self {
        Self {
            ranks,
            cache,
            step,
            recorder,
            row_cost: RowCost::default(),
            draft_model: None,
            draft_layer: None,
            observing,
            ended: StepId::default(),
            deferred: Vec::new(),
        }
    }

    /// With a model that drafts, if there is one.
    pub(crate) fn with_draft_model(self, draft_model: Option<DraftModel>) -> Self {
        Self {
            draft_model,
            ..self
        }
    }

    /// With the model's own layer that drafts, if it has one that is used.
    pub(crate) fn with_draft_layer(self, draft_layer: Option<DraftLayer>) -> Self {
        Self {
            draft_layer,
            ..self
        }
    }

    /// The last step that has ended.
    pub(crate) fn ended(&self) -> StepId {
        self.ended
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.ended == self.step.last()
    }

    /// The step and all before it have ended.
    pub(crate) fn step_ended(&mut self, step: StepId) {
        self.ended = step;
        let due = |deferred: &mut Deferred| deferred.until <= step;
        for Deferred { kv, tokens, .. } in self.deferred.extract_if(.., due) {
            self.cache.return_kv(kv, tokens.as_deref());
        }
    }

    /// After a step that has computed the row.
    pub(crate) fn computed<T>(
        &mut self,
        active: &mut Active<T>,
        row: &StepRow,
        output: RowOutput,
        duration: Duration,
    ) -> Sampled {
        let drawn = output.sampled.tokens();
        active.settled(row, drawn.len());
        let Active { req, kv, .. } = active;
        self.cache.computed(kv, row.computed_to(drawn.len()));
        if !row.drafts.is_empty() {
            self.cache.verified(kv, row.drafts.len(), drawn.len());
        }
        if output.sampled.is_finite() {
            let is_prompt = !row.is_decode();
            self.cache
                .commit_new(kv, row.positions.start, is_prompt, &req.tokens);
        }
        self.cache.leave_window(kv);
        if active.req.output_len() == 0 {
            self.recorder.chunk(&active.req, row, duration);
        } else {
            self.verified(&mut active.req, row, drawn.len());
        }
        active.req.push_prompt_logprobs(output.prompt_logprobs);
        output.sampled
    }

    /// A step has drawn `drawn` tokens of the request's answer.
    fn verified(&self, req: &mut Req, row: &StepRow, drawn: usize) {
        if !row.is_decode() {
            return;
        }
        let (drafts, row_cost) = (row.drafts.len(), self.row_cost.share());
        if req.jumped(drafts, drawn, row_cost) {
            self.recorder.jumped(drafts, drawn);
        } else if let Some(own) = &mut req.drafts {
            own.verified(drafts, drawn, row_cost);
            self.recorder.verified(drafts, drawn);
        }
    }

    /// Appends a token to the answer and returns whether and why it is the last.
    pub(crate) fn take_token(&mut self, req: &mut Req, token: u32) -> Option<FinishReason> {
        self.recorder.token(req);
        req.push_token(token)
    }

    /// Sends the token to the reader; `true` if it is the last.
    pub(crate) fn answer(&mut self, req: &mut Req, token: TokenLogprob) -> bool {
        let finish = self.take_token(req, token.token);
        let is_last = finish.is_some();
        req.emit(token, finish);
        is_last
    }

    /// [`Self::answer`] with each of `tokens` until one is the last; the rest is of no use. `false` if one is.
    pub(crate) fn answer_all(&mut self, active: &mut Active, tokens: Vec<TokenLogprob>) -> bool {
        let Active { req, kv, .. } = active;
        tokens.into_iter().all(|token| {
            self.observe_step(req, kv, token.token);
            !self.answer(req, token)
        })
    }

    /// Records the chunks that a sender has sent since the last call.
    pub(crate) fn chunks_sent(&self, req: &Req, sender: &KvSender) {
        for chunk in sender.take_reports() {
            self.recorder.chunk_sent(req, &chunk);
            self.observe_sent(req, &chunk);
        }
    }

    /// The answer is complete: its computed KV stays in the cache, the rest is returned.
    pub(crate) fn end(&mut self, active: Active) {
        self.recorder.end(&active.req);
        self.release(active);
    }

    /// Caches full pages of the request's computed or received KV, for others to start from.
    pub(crate) fn commit_kv<T>(&mut self, active: &mut Active<T>) {
        self.cache.commit(&mut active.kv, &active.req.tokens);
    }

    /// Returns the request's pages, and caches what can be cached.
    pub(crate) fn release(&mut self, active: Active) -> Req {
        let step = active.last_step();
        let Active { req, kv, .. } = active;
        // One whose transfer was played has received nothing.
        let tokens = (!req.moves_nothing()).then_some(&*req.tokens);
        self.end_kv(kv, step, tokens);
        req
    }

    /// Ends a request none of whose logits is finite; its KV is worthless, if that is not its grammar's.
    pub(crate) fn fail_not_finite(&mut self, active: Active) {
        let step = active.last_step();
        let reason = active.req.why_no_token();
        self.recorder.fail(&active.req, &reason, false);
        self.end_kv(active.kv, step, None);
    }

    fn end_kv(&mut self, kv: ReqKv, last_step: Option<StepId>, tokens: Option<&[u32]>) {
        match last_step.filter(|&step| step > self.ended) {
            Some(until) => self.deferred.push(Deferred {
                until,
                kv,
                tokens: tokens.map(<[u32]>::to_vec),
            }),
            None => self.cache.return_kv(kv, tokens),
        }
    }

    /// Writes the gauges.
    pub(crate) fn write_gauges(&self, queues: &crate::queues::QueueSizes) {
        let usage = self.cache.usage();
        self.recorder
            .observe(queues, &usage, self.cache.page_size());
    }
}
