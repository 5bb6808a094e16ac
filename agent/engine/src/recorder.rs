//! `Recorder`: what the scheduler reports about requests and steps: metrics, timelines, log lines.

use crate::kvcache::allocator::Counts;
use crate::kvcache::pool::Usage;
use crate::metrics::{EngineMetrics, Throughput};
use crate::queues::QueueSizes;
use crate::req::Req;
use crate::step::{StepOutput, StepRow};
use crate::timeline::{Timelines, stage_now};
use pd_kv_transfer::{ChunkReport, KvReceiver};
use pd_protocol::timeline::{Stage, StageEvent};
use prometheus::{IntGauge, IntGaugeVec};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(crate) struct Recorder {
    pub(crate) metrics: EngineMetrics,
    pub(crate) timelines: Arc<Timelines>,
    throughput: Throughput,
    /// Of a slot of recurrent state; 0 for a model without.
    slot_bytes: u64,
}

// === impl Recorder ===

impl Recorder {
    /// Of an engine whose slots of recurrent state have so many bytes.
    pub(crate) fn new(slot_bytes: usize) -> Self {
        let metrics = EngineMetrics::new();
        set(&metrics.gauges.state_slot_bytes, slot_bytes);
        Self {
            metrics,
            timelines: Arc::default(),
            throughput: Throughput::new(Instant::now()),
            slot_bytes: slot_bytes as u64,
        }
    }

    /// A stage of the request's room, if it has one, has just ended.
    pub(crate) fn stage(&self, req: &Req, stage: Stage) {
        self.event(req, stage_now(stage));
    }

    fn event(&self, req: &Req, event: StageEvent) {
        if let Some(room) = req.room() {
            self.timelines.record(room, event);
        }
    }

    /// A step has ended, and so many are still in flight.
    pub(crate) fn step_ended(&self, duration: Duration, output: &StepOutput, in_flight: usize) {
        set(&self.metrics.gauges.steps_in_flight, in_flight);
        let counters = &self.metrics.counters;
        counters.steps.inc();
        counters.graph_replays.inc_by(u64::from(output.is_graph));
        counters.kv_saturations.inc_by(output.kv_saturations);
        let step_time = &self.metrics.histograms.step_time;
        step_time.observe(duration.as_secs_f64());
    }

    /// A step has drawn `drawn` tokens for a request, over `drafts` drafts.
    pub(crate) fn verified(&self, drafts: usize, drawn: usize) {
        let metrics = &self.metrics.speculation;
        metrics.verify.inc();
        metrics.draft_tokens.inc_by(drafts as u64);
        let accepted = drawn.saturating_sub(1) as u64;
        metrics.accepted_tokens.inc_by(accepted);
    }

    /// The same over `drafts` tokens that the request's grammar forced.
    pub(crate) fn jumped(&self, drafts: usize, drawn: usize) {
        let metrics = &self.metrics.grammars;
        metrics.jump_tokens.inc_by(drafts as u64);
        let accepted = drawn.saturating_sub(1) as u64;
        metrics.jump_accepted_tokens.inc_by(accepted);
    }

    /// A step is launched, and so many are in flight with it.
    pub(crate) fn step_launched(&self, in_flight: usize) {
        set(&self.metrics.gauges.steps_in_flight, in_flight);
        if in_flight > 1 {
            self.metrics.counters.overlapped_steps.inc();
        }
    }

    /// A step has computed some of the request's prompt.
    pub(crate) fn chunk(&self, req: &Req, row: &StepRow, duration: Duration) {
        let computed = row.positions.len() as u64;
        self.metrics.counters.prefill_tokens.inc_by(computed);
        self.row(req, Stage::ChunkComputed, row, duration);
    }

    /// A step has computed a token whose prompt came from prefill, the first one here.
    pub(crate) fn first_step(&self, req: &Req, row: &StepRow, duration: Duration) {
        self.row(req, Stage::FirstStep, row, duration);
    }

    fn row(&self, req: &Req, stage: Stage, row: &StepRow, duration: Duration) {
        self.event(
            req,
            StageEvent {
                duration_ns: u64::try_from(duration.as_nanos()).ok(),
                tokens: Some(row.positions.len() as u64),
                ..stage_now(stage)
            },
        );
    }

    /// The request has got the next token of its answer.
    pub(crate) fn token(&mut self, req: &mut Req) {
        let now = Instant::now();
        let histograms = &self.metrics.histograms;
        let counters = &self.metrics.counters;
        match req.times.last_token.replace(now) {
            Some(last) => {
                let since = now.duration_since(last);
                histograms.inter_token_latency.observe(since.as_secs_f64());
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
    }

    /// The answer is complete.
    pub(crate) fn end(&self, req: &Req) {
        let latency = req.times.received.elapsed().as_secs_f64();
        self.metrics.histograms.e2e_request_latency.observe(latency);
        self.event(
            req,
            StageEvent {
                tokens: Some(req.output_len() as u64),
                ..stage_now(Stage::LastToken)
            },
        );
    }

    /// Ends the request without its answer, with an error to its reader.
    pub(crate) fn fail(&self, req: &Req, reason: &str, retriable: bool) {
        req.emit_abort(reason, retriable);
        self.metrics.counters.aborted_requests.inc();
    }

    pub(crate) fn fail_bootstrap(&self, req: &Req, reason: &str, retriable: bool) {
        self.metrics.counters.bootstrap_failed_reqs.inc();
        self.fail(req, reason, retriable);
    }

    pub(crate) fn fail_transfer(&self, req: &Req, reason: &str) {
        self.metrics.counters.transfer_failed_reqs.inc();
        self.fail(req, reason, true);
    }

    /// The request's reader is gone.
    pub(crate) fn abort(&self, req: &Req) {
        tracing::debug!(rid = %req.rid, "client aborted a request");
        self.metrics.counters.aborted_requests.inc();
    }

    pub(crate) fn retraction(&self, req: &Req) {
        tracing::info!(rid = %req.rid, output_len = req.output_len(), "retracted a request: out of KV pages");
        self.metrics.counters.retractions.inc();
    }

    /// The other side of the request's transfer is known, and ours is ready.
    pub(crate) fn bootstrapped(&self, req: &Req, stage: Stage) {
        let waited = req.times.received.elapsed().as_secs_f64();
        self.metrics.histograms.bootstrap_time.observe(waited);
        self.stage(req, stage);
    }

    /// A sender has sent a chunk.
    pub(crate) fn chunk_sent(&self, req: &Req, chunk: &ChunkReport) {
        let counters = &self.metrics.counters;
        counters.kv_transfer_bytes.inc_by(chunk.bytes);
        let seconds = chunk.duration.as_secs_f64();
        counters.kv_transfer_seconds.inc_by(seconds);
        self.event(
            req,
            StageEvent {
                at_unix_ns: chunk.at_unix_ns,
                duration_ns: u64::try_from(chunk.duration.as_nanos()).ok(),
                bytes: Some(chunk.bytes),
                state_bytes: self.state_bytes(chunk.bytes).filter(|_| chunk.last),
                ..stage_now(Stage::ChunkSent)
            },
        );
    }

    /// Prefill: the peer has everything, `waited` after the last chunk was handed over.
    pub(crate) fn sent(&self, req: &Req, waited: Duration) {
        let transfer_time = &self.metrics.histograms.transfer_time;
        transfer_time.observe(waited.as_secs_f64());
        self.stage(req, Stage::LastWrite);
    }

    /// Decode: everything is here, `waited` after our pages were offered; the first `cached_len` tokens were before.
    pub(crate) fn received(
        &self,
        req: &Req,
        receiver: &KvReceiver,
        cached_len: usize,
        waited: Duration,
    ) {
        let transfer_time = &self.metrics.histograms.transfer_time;
        transfer_time.observe(waited.as_secs_f64());
        let report = receiver.report();
        let bytes = report.map(|report| report.bytes);
        let counters = &self.metrics.counters;
        counters.kv_transfer_bytes.inc_by(bytes.unwrap_or(0));
        counters.decode_cached_tokens.inc_by(cached_len as u64);
        self.event(
            req,
            StageEvent {
                bytes,
                state_bytes: bytes.and_then(|bytes| self.state_bytes(bytes)),
                duration_ns: report
                    .and_then(|report| u64::try_from(report.duration.as_nanos()).ok()),
                ..stage_now(Stage::TransferDone)
            },
        );
    }

    /// Of so many bytes with which a transfer ends, those of the request's state. A fake transfer moves none.
    fn state_bytes(&self, bytes: u64) -> Option<u64> {
        let moved = self.slot_bytes.min(bytes);
        (moved > 0).then_some(moved)
    }

    /// Writes the gauges.
    pub(crate) fn observe(&self, queues: &QueueSizes, usage: &Usage, page_size: usize) {
        self.observe_queues(queues);
        let gauges = &self.metrics.gauges;
        let pages = usage.pages;
        set_by_state(&gauges.kv_pages, &pages, usage.locked, usage.unlocked);
        let windows = usage.window_pages;
        if windows.total > 0 {
            let (locked, unlocked) = (usage.locked_windows, usage.unlocked_windows);
            set_by_state(&gauges.window_pages, &windows, locked, unlocked);
        }
        if usage.slots.total > 0 {
            let (locked, unlocked) = (usage.locked_states, usage.unlocked_states);
            set_by_state(&gauges.state_slots, &usage.slots, locked, unlocked);
        }
        let used = pages.total - pages.free - usage.unlocked;
        let used_windows = windows.total - windows.free - usage.unlocked_windows;
        set(&gauges.num_used_tokens, used * page_size);
        set(&gauges.max_total_num_tokens, pages.total * page_size);
        set(&gauges.req_pool_rows_used, usage.rows);
        let shares = [(used, pages.total), (used_windows, windows.total)];
        let shares = shares.map(|(used, total)| ratio(used as u64, total as u64));
        gauges.token_usage.set(shares[0].max(shares[1]));
        let counters = &self.metrics.counters;
        let hit_rate = ratio(counters.cached_tokens.get(), counters.prompt_tokens.get());
        gauges.cache_hit_rate.set(hit_rate);
        let speculation = &self.metrics.speculation;
        let (verified, accepted) = (speculation.verify.get(), speculation.accepted_tokens.get());
        let accept_len = ratio(verified + accepted, verified);
        speculation.accept_length.set(accept_len);
        let accept_rate = ratio(accepted, speculation.draft_tokens.get());
        speculation.accept_rate.set(accept_rate);
    }

    fn observe_queues(&self, queues: &QueueSizes) {
        let gauges = &self.metrics.gauges;
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
        set(&gauges.rooms_in_flight, queues.rooms());
        if queues.is_empty() {
            gauges.gen_throughput.set(0.0);
        }
        gauges.new_token_ratio.set(queues.new_token_ratio);
    }
}

fn set_by_state(gauges: &IntGaugeVec, counts: &Counts, locked: usize, unlocked: usize) {
    let by_state = [
        ("free", counts.free),
        ("cached", unlocked),
        ("locked", locked),
        ("held", counts.held),
        ("quarantined", counts.quarantined),
    ];
    for (state, len) in by_state {
        set(&gauges.with_label_values(&[state]), len);
    }
}

fn set(gauge: &IntGauge, len: usize) {
    gauge.set(i64::try_from(len).unwrap_or(i64::MAX));
}

#[expect(clippy::cast_precision_loss, reason = "a gauge")]
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}
