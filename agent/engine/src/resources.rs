//! `Resources`: what all modes of the scheduler share (device, KV bookkeeping, metrics, timelines)
//! and what happens to a request in every mode: it is extended, gets a token, ends.

use crate::batch::{Batch, BatchRow};
use crate::engine::{FinishReason, TokenLogprob};
use crate::event_loop::QueueSizes;
use crate::kvcache::pool::{KvCache, ReqKv};
use crate::metrics::{EngineMetrics, Throughput};
use crate::model_runner::{Launched, ModelRunner};
use crate::req::{Req, Transfer};
use crate::timeline::{Timelines, stage_now};
use pd_compute::{Backend, ComputeError};
use pd_protocol::timeline::{Stage, StageEvent};
use prometheus::IntGauge;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(crate) struct Resources<B: Backend> {
    pub(crate) runner: ModelRunner<B>,
    pub(crate) cache: KvCache,
    pub(crate) metrics: EngineMetrics,
    pub(crate) timelines: Arc<Timelines>,
    pub(crate) throughput: Throughput,
    pub(crate) deferred_free: DeferredFree,
}

/// KV of requests that ended while a step that was launched early still writes to it: it is
/// returned after that step, because a peer or another request may then write to it.
#[derive(Debug, Default)]
pub(crate) struct DeferredFree {
    /// Such a step is in flight.
    is_ahead: bool,
    ended: Vec<EndedKv>,
}

#[derive(Debug)]
struct EndedKv {
    kv: ReqKv,
    /// Tokens to cache; empty if the request's KV is worthless.
    tokens: Vec<u32>,
}

/// A request that no worker can answer.
pub(crate) const NOT_FINITE: &str =
    "the model's logits are not finite for this input; its weights are broken";

// === impl Resources ===

impl<B: Backend> Resources<B> {
    /// Launches the step after `launched`, which is over `batch` and whose results are not known
    /// yet; `None` if they must be known first, or no request continues.
    ///
    /// # Errors
    /// If allocating larger tables fails.
    pub(crate) fn launch_ahead(
        &mut self,
        batch: &Batch,
        launched: &Launched<B>,
    ) -> Result<Option<Launched<B>>, ComputeError> {
        if !batch.is_decode() || batch.rows.iter().any(|row| row.req.penalties.are_on()) {
            return Ok(None);
        }
        let go_on = batch.rows.iter().filter(|row| row.may_go_on());
        let kv = go_on.filter_map(|row| Some((row.req.kv.as_ref()?, row.positions().end + 1)));
        let kv: Vec<_> = kv.collect();
        let short = kv.iter().map(|(kv, len)| self.cache.pages_short(kv, *len));
        if kv.is_empty() || short.sum::<usize>() > self.cache.available_pages() {
            return Ok(None);
        }
        for (kv, len) in kv {
            assert!(self.cache.try_extend(kv, len), "there are pages enough");
        }
        self.metrics.counters.overlapped_steps.inc();
        let req_to_token = self.cache.req_to_token();
        let ahead = self.runner.launch_ahead(batch, launched, req_to_token)?;
        Ok(Some(ahead))
    }

    /// After a step: counts the row's tokens as computed, and adds to the report of its prompt.
    pub(crate) fn advance_kv_len(
        &mut self,
        row: BatchRow,
        prompt_logprobs: Vec<TokenLogprob>,
    ) -> Req {
        let BatchRow {
            mut req,
            extend_len,
        } = row;
        let kv = req.kv.as_mut().expect("a request in a batch holds pages");
        kv.len += extend_len;
        for logprob in prompt_logprobs {
            req.push_prompt_logprob(logprob);
        }
        req
    }

    /// Appends a token to the answer and returns whether and why it is the last.
    pub(crate) fn take_token(&mut self, req: &mut Req, token: u32) -> Option<FinishReason> {
        let now = Instant::now();
        let histograms = &self.metrics.histograms;
        let counters = &self.metrics.counters;
        match req.times.last_token.replace(now) {
            Some(last) => {
                histograms
                    .inter_token_latency
                    .observe(now.duration_since(last).as_secs_f64());
            }
            None => {
                let since = now.duration_since(req.times.received);
                histograms.time_to_first_token.observe(since.as_secs_f64());
                let scheduled = req.times.first_scheduled.unwrap_or(now);
                let queued = scheduled.duration_since(req.times.received);
                histograms.queue_time.observe(queued.as_secs_f64());
                counters.prompt_tokens.inc_by(req.prompt_len as u64);
                counters.cached_tokens.inc_by(req.cached_tokens as u64);
            }
        }
        if !req.is_prompt_only() {
            counters.generation_tokens.inc();
            if let Some(rate) = self.throughput.add(1, now) {
                self.metrics.gauges.gen_throughput.set(rate);
            }
        }
        req.push_token(token)
    }

    /// The answer is complete: its computed KV stays in the cache, the rest is returned.
    pub(crate) fn end(&mut self, mut req: Req) {
        self.release_kv(&mut req);
        let latency = req.times.received.elapsed().as_secs_f64();
        self.metrics.histograms.e2e_request_latency.observe(latency);
        self.record(
            &req,
            StageEvent {
                tokens: Some(req.output_len() as u64),
                ..stage_now(Stage::LastToken)
            },
        );
    }

    /// Caches full pages of the request's computed KV, for others to start from.
    pub(crate) fn commit_kv(&mut self, req: &mut Req) {
        if let Some(kv) = &mut req.kv {
            self.cache.commit(kv, &req.tokens);
        }
    }

    /// Returns the request's pages, and caches what can be cached.
    pub(crate) fn release_kv(&mut self, req: &mut Req) {
        if let Some(kv) = req.kv.take() {
            self.end_kv(kv, &req.tokens);
        }
    }

    fn end_kv(&mut self, kv: ReqKv, tokens: &[u32]) {
        if self.deferred_free.is_ahead {
            let tokens = tokens.to_vec();
            self.deferred_free.ended.push(EndedKv { kv, tokens });
        } else {
            self.cache.end(kv, tokens);
        }
    }

    /// Records the end of a step, with all steps before it, and whether the next one is already in
    /// flight.
    pub(crate) fn step_ended(&mut self, is_ahead: bool) {
        self.deferred_free.is_ahead = is_ahead;
        for EndedKv { kv, tokens } in std::mem::take(&mut self.deferred_free.ended) {
            self.cache.end(kv, &tokens);
        }
    }

    /// Ends the request without its answer, with an error to its reader.
    pub(crate) fn fail(&self, req: &Req, reason: &str, retriable: bool) {
        req.emit_abort(reason, retriable);
        self.metrics.counters.aborted_requests.inc();
    }

    pub(crate) fn fail_not_finite(&mut self, mut req: Req) {
        if let Some(kv) = req.kv.take() {
            self.end_kv(kv, &[]);
        }
        self.fail(&req, NOT_FINITE, false);
    }

    /// The request's reader is gone.
    pub(crate) fn record_abort(&self, req: &Req) {
        tracing::debug!(rid = %req.rid, "client aborted a request");
        self.metrics.counters.aborted_requests.inc();
    }

    pub(crate) fn note_retraction(&self, req: &Req) {
        tracing::info!(rid = %req.rid, output_len = req.output_len(), "retracted a request: out of KV pages");
        self.metrics.counters.retractions.inc();
    }

    /// Records a step in metrics and timelines, before its requests move on.
    pub(crate) fn record_step(&self, batch: &Batch, duration: Duration) {
        let histograms = &self.metrics.histograms;
        histograms.step_time.observe(duration.as_secs_f64());
        for row in &batch.rows {
            let req = &row.req;
            if req.output_len() == 0 {
                let computed = row.extend_len as u64;
                self.metrics.counters.prefill_tokens.inc_by(computed);
            }
            let stage = match req.output_len() {
                0 => Stage::ChunkComputed,
                1 if matches!(req.transfer, Transfer::Receiver(_)) => Stage::FirstStep,
                _ => continue,
            };
            let event = stage_now(stage);
            let (duration_ns, tokens) = (u64::try_from(duration.as_nanos()).ok(), row.extend_len);
            self.record(
                req,
                StageEvent {
                    duration_ns,
                    tokens: Some(tokens as u64),
                    ..event
                },
            );
        }
    }

    /// Writes the gauges.
    pub(crate) fn observe(&self, queues: &QueueSizes) {
        let gauges = &self.metrics.gauges;
        let set = |gauge: &IntGauge, len: usize| gauge.set(i64::try_from(len).unwrap_or(i64::MAX));
        set(&gauges.num_running_reqs, queues.running);
        set(&gauges.num_queue_reqs, queues.waiting);
        set(&gauges.num_queue_tokens, queues.waiting_tokens);
        let age = queues
            .oldest
            .map_or(Duration::ZERO, |since| since.elapsed());
        gauges.queue_oldest_age.set(age.as_secs_f64());
        set(&gauges.num_retracted_reqs, queues.retracted);
        set(&gauges.bootstrap_queue_size, queues.bootstrap);
        set(&gauges.num_prefill_inflight_queue_reqs, queues.inflight);
        set(&gauges.num_decode_prealloc_queue_reqs, queues.prealloc);
        set(&gauges.transfer_queue_size, queues.transfer);
        set(&gauges.num_decode_transfer_queue_reqs, queues.transfer);
        set(&gauges.prealloc_tokens, queues.prealloc_tokens);
        set(&gauges.metadata_rows_used, queues.metadata_rows_used);
        set(&gauges.metadata_rows_total, queues.metadata_rows_total);
        let rooms = queues.bootstrap + queues.inflight + queues.prealloc + queues.transfer;
        set(&gauges.rooms_in_flight, rooms + queues.fenced);
        if queues.is_empty() {
            gauges.gen_throughput.set(0.0);
        }
        gauges.new_token_ratio.set(queues.new_token_ratio);

        let usage = self.cache.usage();
        let pages = usage.pages;
        let by_state = [
            ("free", pages.free),
            ("cached", usage.unlocked),
            ("locked", usage.locked),
            ("held", pages.held),
            ("quarantined", pages.quarantined),
        ];
        for (state, len) in by_state {
            set(&gauges.kv_pages.with_label_values(&[state]), len);
        }
        let page_size = self.cache.page_size();
        let used = pages.total - pages.free - usage.unlocked;
        set(&gauges.num_used_tokens, used * page_size);
        set(&gauges.max_total_num_tokens, pages.total * page_size);
        set(&gauges.req_pool_rows_used, usage.rows);
        gauges
            .token_usage
            .set(ratio(used as u64, pages.total as u64));
        let counters = &self.metrics.counters;
        let hit_rate = ratio(counters.cached_tokens.get(), counters.prompt_tokens.get());
        gauges.cache_hit_rate.set(hit_rate);
    }

    /// Records in the timeline the chunks that a sender has sent since the last call.
    pub(crate) fn record_chunks(&self, req: &Req) {
        let Transfer::Sender(sender, _) = &req.transfer else {
            return;
        };
        for chunk in sender.take_reports() {
            let counters = &self.metrics.counters;
            counters.kv_transfer_bytes.inc_by(chunk.bytes);
            let seconds = chunk.duration.as_secs_f64();
            counters.kv_transfer_seconds.inc_by(seconds);
            self.record(
                req,
                StageEvent {
                    at_unix_ns: chunk.at_unix_ns,
                    duration_ns: u64::try_from(chunk.duration.as_nanos()).ok(),
                    bytes: Some(chunk.bytes),
                    ..stage_now(Stage::ChunkSent)
                },
            );
        }
    }

    pub(crate) fn record(&self, req: &Req, event: StageEvent) {
        if let Some(room) = req.room() {
            self.timelines.record(room, event);
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a gauge")]
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}
