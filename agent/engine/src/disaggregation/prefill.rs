//! `Prefill`: computes prompts and their first token, and sends the KV to decode.
//!
//! Life of a request:
//! 1. `prefill_bootstrap_queue`: until decode has sent its destination pages.
//! 2. `PrefillScheduler`: its prompt is computed, whole or in chunks; after each chunk its full
//!    pages are sent while the next is computed. It ends after one token: `admit` bounds its length.
//! 3. With the last chunk the rest is sent, and the metadata row with the first token.
//! 4. `prefill_inflight_queue`: until decode reports that it has everything. Then the leg is answered
//!    and its memory freed.

use super::TransferEnd;
use super::fence::Fence;
use super::prefill_bootstrap_queue::PrefillBootstrapQueue;
use super::prefill_inflight_queue::PrefillInflightQueue;
use crate::batch::{Batch, RowOutput, Sampled};
use crate::engine::{FinishReason, RequestId, TokenLogprob};
use crate::event_loop::{Mode, QueueSizes};
use crate::req::{Req, Transfer};
use crate::resources::{NOT_FINITE, Resources};
use crate::schedule::ScheduleLimits;
use crate::schedule::prefill::PrefillScheduler;
use crate::schedule::prefill_adder::PrefillAdder;
use pd_compute::Backend;
use pd_kv_transfer::LastChunk;
use pd_protocol::KvPoll;
use pd_protocol::metadata::{MetadataRow, TokenLogprob as RowLogprob};

pub(crate) struct Prefill {
    limits: ScheduleLimits,
    end: TransferEnd,
    bootstrap: PrefillBootstrapQueue,
    scheduler: PrefillScheduler,
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
            inflight: PrefillInflightQueue::default(),
            fence: Fence::default(),
        }
    }

    /// Requests whose decode side gave up before they were computed.
    fn drop_failed<B: Backend>(&mut self, resources: &mut Resources<B>) {
        for mut req in self
            .scheduler
            .take_if(|req| req.transfer.poll() == KvPoll::Failed)
        {
            resources.metrics.counters.transfer_failed_reqs.inc();
            resources.fail(&req, &req.transfer.failure(), true);
            self.fence.take(&mut req, &mut resources.cache);
        }
    }

    /// Sends the unsent full pages, or everything that is left together with the metadata row.
    fn send_kv_chunk<B: Backend>(
        &self,
        resources: &Resources<B>,
        req: &mut Req,
        first_token: Option<&TokenLogprob>,
    ) {
        let kv = req.kv.as_ref().expect("a computed request holds pages");
        let full_pages = kv.len / resources.cache.page_size();
        let pages = resources.cache.req_to_token().pages(kv.idx);
        let pages = if first_token.is_some() {
            pages
        } else {
            &pages[..full_pages]
        };
        let pages: Vec<u32> = pages.iter().map(|page| page.0).collect();
        if let Some(token) = first_token {
            let index = req
                .metadata_buffer_index
                .expect("a bootstrapped request has a row");
            let row = metadata_row(req, token);
            let written = self.end.metadata.write_row(index, &row);
            written.expect("rows are sized for every field's longest value");
        }
        let Transfer::Sender(sender, sent) = &mut req.transfer else {
            unreachable!("a prefill request has a sender");
        };
        if pages.len() > *sent || first_token.is_some() {
            sender.send(&pages[*sent..], first_token.map(|_| LastChunk::default()));
            *sent = pages.len();
        }
    }
}

impl<B: Backend> Mode<B> for Prefill {
    fn admit(&mut self, resources: &mut Resources<B>, mut req: Req) {
        req.len_max = req.prompt_len + 1;
        self.bootstrap.push(resources, &self.end, req);
    }

    fn abort(&mut self, resources: &mut Resources<B>, id: RequestId) {
        let queued = self.bootstrap.take(id).or_else(|| self.scheduler.take(id));
        if let Some(mut req) = queued.or_else(|| self.inflight.take(id)) {
            resources.record_abort(&req);
            self.fence.take(&mut req, &mut resources.cache);
        }
    }

    fn abort_all(&mut self, resources: &mut Resources<B>, reason: &str) {
        let waiting = self.scheduler.take_if(|_| true).into_iter();
        let all = self
            .bootstrap
            .take_all()
            .chain(waiting)
            .chain(self.inflight.take_all());
        for mut req in all {
            resources.fail(&req, reason, true);
            self.fence.take(&mut req, &mut resources.cache);
        }
    }

    fn advance(&mut self, resources: &mut Resources<B>) {
        self.fence
            .sweep(&mut resources.cache, &mut self.end.metadata_rows);
        self.inflight
            .pop_done(resources, &mut self.end, &mut self.fence);
        self.drop_failed(resources);
        let (end, fence) = (&mut self.end, &mut self.fence);
        for req in self.bootstrap.pop_bootstrapped(resources, end, fence) {
            self.scheduler.push_back(req);
        }
    }

    fn schedule(&mut self, resources: &mut Resources<B>) -> Batch {
        let cache = &mut resources.cache;
        let adder = PrefillAdder::new(&self.limits, cache.page_size(), 0, 0);
        Batch {
            rows: self.scheduler.next_rows(cache, adder),
        }
    }

    fn settle(&mut self, resources: &mut Resources<B>, batch: Batch, outputs: Vec<RowOutput>) {
        for (row, output) in batch.rows.into_iter().zip(outputs) {
            let mut req = resources.advance_kv_len(row, output.prompt_logprobs);
            match output.sampled {
                Sampled::NotYet => {
                    self.send_kv_chunk(resources, &mut req, None);
                    resources.record_chunks(&req);
                    self.scheduler.set_chunked(req);
                }
                Sampled::NotFinite => {
                    resources.fail(&req, NOT_FINITE, false);
                    self.fence.take(&mut req, &mut resources.cache);
                }
                Sampled::Token(first) => {
                    let finish = resources.take_token(&mut req, first.token);
                    self.send_kv_chunk(resources, &mut req, Some(&first));
                    resources.commit_kv(&mut req);
                    self.inflight
                        .push(req, first, finish.unwrap_or(FinishReason::Length));
                }
            }
        }
    }

    fn queues(&self) -> QueueSizes {
        QueueSizes {
            waiting: self.scheduler.len(),
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

/// What decode needs to continue from the first token. Source: docs/sglang-protocol.md#metadata.
fn metadata_row(req: &Req, first: &TokenLogprob) -> MetadataRow {
    let room = req.room().expect("a prefill request has a room");
    let to_i32 = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
    let pair = |token: u32, logprob: f32| RowLogprob {
        logprob,
        token_id: token.cast_signed(),
    };
    let mut row = MetadataRow::new(room, first.token.cast_signed());
    row.cached_tokens = vec![to_i32(req.cached_tokens), to_i32(req.cached_tokens)];
    row.output_token_logprobs = first
        .logprob
        .map(|p| pair(first.token, p))
        .into_iter()
        .collect();
    row.output_top_logprobs = first.top.iter().map(|&(token, p)| pair(token, p)).collect();
    row
}
