//! `Req`: one request inside the scheduler: its tokens so far, its parameters, its reader. It moves from queue to
//! queue, and its queue is its state: what a phase needs beside it (pages, an end of a transfer) is in the queue's
//! entry.

use crate::answer::AnswerSender;
use crate::command::{RequestId, Submission};
use crate::grammar::{GrammarState, MaskJob};
use crate::in_flight::InFlight;
use crate::info::EngineInfo;
use crate::request::{FinishReason, LogprobOptions, TokenEvent, TokenLogprob};
use crate::sample::params::SamplingParams;
use crate::sample::penalties::Penalties;
use crate::sample::stop::StopChecker;
use crate::speculate::jumps::Jumps;
use crate::speculate::last_entry::LastEntry;
use crate::speculate::switch::Lately;
use crate::speculate::{ReqDrafts, Speculation};
use crate::text::{Detokenizer, Tokenizer};
use pd_protocol::BootstrapRoom;
use pd_protocol::ports::FAKE_BOOTSTRAP_HOST;
use pd_protocol::workers::BootstrapFields;
use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// SGLang's `Req`.
pub(crate) struct Req {
    pub(crate) id: RequestId,
    pub(crate) rid: String,
    /// Prompt, then answer.
    pub(crate) tokens: Vec<u32>,
    pub(crate) prompt_len: usize,
    /// The request ends at this length; bounded by the KV pool and the context.
    pub(crate) len_max: usize,
    pub(crate) sampling: SamplingParams,
    pub(crate) logprobs: LogprobOptions,
    pub(crate) choice: u32,
    pub(crate) seed: u64,
    pub(crate) stop: StopChecker,
    pub(crate) penalties: Penalties,
    /// How far the answer has come in the request's grammar, if it has one.
    pub(crate) grammar: Option<GrammarState>,
    /// None unless the engine speculates.
    pub(crate) drafts: Option<ReqDrafts>,
    /// None unless the engine jumps and the request has a grammar.
    jumps: Option<Jumps>,
    /// Prompt tokens found in the cache.
    pub(crate) cached_tokens: usize,
    pub(crate) bootstrap: Option<BootstrapFields>,
    pub(crate) times: ReqTimes,
    prompt_logprobs: Vec<TokenLogprob>,
    answer: AnswerSender,
    /// Dropped before the last event of the answer is sent: who has read that may have the room, and the place.
    in_flight: Cell<Option<InFlight>>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ReqTimes {
    pub(crate) received: Instant,
    /// When it began to wait for a step.
    pub(crate) queued: Option<Instant>,
    pub(crate) first_scheduled: Option<Instant>,
    pub(crate) last_token: Option<Instant>,
}

/// A request that no worker can answer.
pub(crate) const NOT_FINITE: &str =
    "the model's logits are not finite for this input; its weights are broken";

/// Makes a [`Req`] of each submission; holds what it needs of the engine.
#[derive(Debug)]
pub(crate) struct ReqFactory {
    tokenizer: Arc<Tokenizer>,
    eos_token_ids: Vec<u32>,
    context_length: usize,
    /// Tokens that the KV pool holds.
    capacity: usize,
    random_seed: u64,
    speculation: Option<Speculation>,
    /// How jumps went; none where the engine does not jump.
    jumps: Option<Lately>,
}

// === impl ReqFactory ===

impl ReqFactory {
    pub(crate) fn new(
        info: &EngineInfo,
        random_seed: u64,
        tokenizer: Arc<Tokenizer>,
        speculation: Option<Speculation>,
        jumps: Option<Lately>,
    ) -> Self {
        Self {
            tokenizer,
            eos_token_ids: info.eos_token_ids.clone(),
            context_length: info.context_length as usize,
            capacity: info.max_total_tokens as usize,
            random_seed,
            speculation,
            jumps,
        }
    }

    pub(crate) fn make(&self, submission: Submission) -> Req {
        let Submission {
            id,
            request,
            answer,
            in_flight,
        } = submission;
        let wanted = request.sampling.max_new_tokens;
        let wanted = wanted.map_or(usize::MAX, |len| len as usize);
        let len_max = request.input_ids.len().saturating_add(wanted);
        // Both legs of a request know its room: with one --random-seed they agree without a seed of the request.
        let bootstrap = request.bootstrap.as_ref();
        let stream = bootstrap.map_or(id.0, |b| b.bootstrap_room.get());
        let seed = self.random_seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let sampling = &request.sampling;
        let stop = StopChecker::new(sampling, &self.eos_token_ids, || {
            let mut detokenizer =
                Detokenizer::new(self.tokenizer.clone(), sampling.skip_special_tokens)
                    .showing(sampling.shown_special_ids.clone());
            Box::new(move |token| detokenizer.push(token))
        });
        let speculation = self.speculation.as_ref();
        let jumps = self.jumps.as_ref().filter(|_| request.grammar.is_some());
        Req {
            id,
            rid: request.rid,
            prompt_len: request.input_ids.len(),
            penalties: Penalties::new(&request.sampling, &request.input_ids),
            len_max: len_max.min(self.context_length).min(self.capacity),
            tokens: request.input_ids,
            seed: request.sampling.seed.unwrap_or(seed),
            sampling: request.sampling,
            logprobs: request.logprobs,
            choice: request.choice,
            stop,
            drafts: speculation.map(Speculation::req_drafts),
            jumps: jumps.map(Jumps::new),
            grammar: request.grammar.map(GrammarState::new),
            cached_tokens: 0,
            bootstrap: request.bootstrap,
            times: ReqTimes {
                received: Instant::now(),
                queued: None,
                first_scheduled: None,
                last_token: None,
            },
            prompt_logprobs: Vec::new(),
            answer,
            in_flight: Cell::new(Some(in_flight)),
        }
    }
}

// === impl Req ===

impl Req {
    pub(crate) fn room(&self) -> Option<BootstrapRoom> {
        self.bootstrap
            .as_ref()
            .map(|bootstrap| bootstrap.bootstrap_room)
    }

    /// Whether it only plays its transfer, as probes of health do.
    pub(crate) fn moves_nothing(&self) -> bool {
        let bootstrap = self.bootstrap.as_ref();
        bootstrap.is_some_and(|bootstrap| bootstrap.bootstrap_host == FAKE_BOOTSTRAP_HOST)
    }

    /// Whether both get their KV from the same prefill.
    pub(crate) fn has_prefill_of(&self, other: &Self) -> bool {
        let both = self.bootstrap.as_ref().zip(other.bootstrap.as_ref());
        both.is_some_and(|(own, others)| {
            own.bootstrap_host == others.bootstrap_host
                && own.bootstrap_port == others.bootstrap_port
        })
    }

    pub(crate) fn output_len(&self) -> usize {
        self.tokens.len() - self.prompt_len
    }

    /// Tokens that the answer may still get.
    pub(crate) fn remaining_len(&self) -> usize {
        self.len_max.saturating_sub(self.tokens.len())
    }

    pub(crate) fn top_logprobs_num(&self) -> u32 {
        if self.logprobs.return_logprob {
            self.logprobs.top_logprobs_num
        } else {
            0
        }
    }

    /// Tokens whose log probabilities are reported at each position.
    pub(crate) fn token_ids_logprob(&self) -> &Arc<[u32]> {
        &self.logprobs.token_ids_logprob
    }

    /// First prompt position whose logits are wanted for a prompt logprob: that of the next token.
    /// `None` if none are wanted, or after they were reported.
    pub(crate) fn prompt_logprobs_from(&self) -> Option<usize> {
        let start = self
            .logprobs
            .logprob_start_len
            .filter(|_| self.logprobs.return_logprob)?;
        (self.output_len() == 0).then(|| (start as usize).saturating_sub(1))
    }

    /// Tokens that may come from the cache: at least one must be computed to sample the next, and
    /// so must those whose logits are wanted.
    pub(crate) fn cacheable_len(&self) -> usize {
        let computed = self.prompt_logprobs_from().unwrap_or(usize::MAX);
        computed.min(self.tokens.len() - 1)
    }

    /// The first token of a prompt, which nothing predicts, opens the report.
    pub(crate) fn open_prompt_logprobs(&mut self) {
        let reported = self.prompt_logprobs_from().is_some() && self.prompt_logprobs.is_empty();
        if reported && self.logprobs.logprob_start_len == Some(0) {
            let first = TokenLogprob {
                token: self.tokens[0],
                logprob: None,
                top: Vec::new(),
                asked: Vec::new(),
            };
            self.prompt_logprobs.push(first);
        }
    }

    /// Of `positions`, those whose logits yield a prompt logprob: the next token is the prompt's.
    pub(crate) fn prompt_logprob_positions(&self, positions: &Range<usize>) -> Range<usize> {
        let Some(from) = self.prompt_logprobs_from() else {
            return 0..0;
        };
        let end = positions.end.min(self.prompt_len - 1);
        from.max(positions.start).min(end)..end
    }

    pub(crate) fn push_prompt_logprobs(&mut self, logprobs: Vec<TokenLogprob>) {
        self.prompt_logprobs.extend(logprobs);
    }

    /// Only the prompt was requested: a token is sampled, as for any prompt, and discarded.
    pub(crate) fn is_prompt_only(&self) -> bool {
        self.sampling.max_new_tokens == Some(0)
    }

    /// Appends the next token of the answer; returns whether and why it was the last.
    pub(crate) fn push_token(&mut self, token: u32) -> Option<FinishReason> {
        if self.is_prompt_only() {
            return Some(FinishReason::Length);
        }
        self.tokens.push(token);
        self.penalties.push(token);
        let of_grammar = self
            .grammar
            .as_ref()
            .and_then(|grammar| grammar.take(token));
        let stop = self.stop.check(token, self.output_len());
        let stop = of_grammar.or(stop);
        stop.or_else(|| (self.tokens.len() >= self.len_max).then_some(FinishReason::Length))
    }

    /// What computes the mask of the token after the last and `drafts`, if the request has a grammar. Ids that may not be
    /// drawn yet, or are ignored, wait until the grammar leaves nothing else.
    pub(crate) fn mask_job(&self, drafts: &[u32]) -> Option<MaskJob> {
        let grammar = self.grammar.as_ref()?;
        let withheld = self.stop.withheld(self.output_len() + drafts.len());
        Some(grammar.mask_job(drafts, withheld))
    }

    /// Why the model could draw no token.
    pub(crate) fn why_no_token(&self) -> String {
        let grammar = self.grammar.as_ref();
        grammar.map_or_else(|| NOT_FINITE.to_owned(), GrammarState::why_none)
    }

    /// Sends the reader one token, which `RequestStream::recv` returns. A reader that is gone has sent
    /// an abort.
    pub(crate) fn emit(&mut self, sampled: TokenLogprob, finish: Option<FinishReason>) {
        let visible = (!self.is_prompt_only()).then_some(sampled);
        let event = TokenEvent {
            token_ids: visible.iter().map(|sampled| sampled.token).collect(),
            prompt_logprobs: std::mem::take(&mut self.prompt_logprobs),
            logprobs: visible
                .filter(|_| self.logprobs.return_logprob)
                .into_iter()
                .collect(),
            cached_tokens: u32::try_from(self.cached_tokens).unwrap_or(u32::MAX),
            spec_verify_ct: self.drafts.as_ref().map(ReqDrafts::verify_ct),
            finish,
        };
        if event.finish.is_some() {
            self.leave();
        }
        self.answer.send(event);
    }

    /// How many of `max` drafts are wanted.
    pub(crate) fn drafts_wanted(&self, max: usize) -> usize {
        let max = self.useful_drafts(max);
        self.drafts.as_ref().map_or(0, |drafts| drafts.wanted(max))
    }

    /// More of `max` drafts would be past the answer's longest end.
    fn useful_drafts(&self, max: usize) -> usize {
        max.min(self.remaining_len().saturating_sub(1))
    }

    /// What a draft layer made of the last entry, if that is known.
    pub(crate) fn last_entry(&self) -> Option<&LastEntry> {
        self.drafts.as_ref()?.last_entry.as_ref()
    }

    pub(crate) fn set_last_entry(&mut self, entry: Option<LastEntry>) {
        if let Some(drafts) = &mut self.drafts {
            drafts.last_entry = entry;
        }
    }

    /// Up to `max` drafts of what comes after the last token, by the request's own drafter.
    pub(crate) fn propose(&mut self, max: usize) -> Vec<u32> {
        let max = self.drafts_wanted(max);
        let Some(drafts) = &mut self.drafts else {
            return Vec::new();
        };
        let mut proposed = drafts.propose(&self.tokens, max);
        self.keep_allowed(&mut proposed);
        proposed
    }

    /// Of `drafts`, keeps those that the request's grammar allows, up to the first that it does not.
    pub(crate) fn keep_allowed(&self, drafts: &mut Vec<u32>) {
        if let Some(grammar) = self.grammar.as_ref().filter(|_| !drafts.is_empty()) {
            drafts.truncate(grammar.allowed(drafts));
        }
    }

    /// Up to `max` tokens of the text that the request's grammar forces next, which are the drafts of the next step.
    pub(crate) fn jump(&mut self, max: usize) -> Vec<u32> {
        let max = self.useful_drafts(max);
        let (Some(jumps), Some(grammar)) = (&mut self.jumps, &self.grammar) else {
            return Vec::new();
        };
        let mut drafts = grammar.forced(jumps.wanted(max));
        drafts.truncate(grammar.allowed(&drafts));
        jumps.jump(&drafts);
        drafts
    }

    /// A step has drawn `drawn` tokens over `drafts` drafts. Returns whether they were of a jump. `row_cost` is the cost of
    /// a draft's row, as a share of that of a token without drafts.
    pub(crate) fn jumped(&mut self, drafts: usize, drawn: usize, row_cost: f64) -> bool {
        let jumps = self.jumps.as_mut();
        let jumped = jumps.is_some_and(|jumps| jumps.verified(drafts, drawn, row_cost));
        if let Some(own) = self.drafts.as_mut().filter(|_| jumped) {
            own.jumped();
        }
        jumped
    }

    /// Reports to the reader that the answer ends here, or that there is none.
    pub(crate) fn emit_abort(&self, reason: impl Into<String>, retriable: bool) {
        let reason = reason.into();
        tracing::debug!(rid = %self.rid, reason, retriable, "request ended without its answer");
        let finish = Some(FinishReason::Abort { reason, retriable });
        self.leave();
        self.answer.end(TokenEvent {
            finish,
            ..TokenEvent::default()
        });
    }

    /// The request is no longer in flight.
    fn leave(&self) {
        drop(self.in_flight.take());
    }
}

impl std::fmt::Debug for Req {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Req")
            .field("rid", &self.rid)
            .field("prompt_len", &self.prompt_len)
            .field("output_len", &self.output_len())
            .finish_non_exhaustive()
    }
}
