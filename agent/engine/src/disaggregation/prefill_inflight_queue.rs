//! `PrefillInflightQueue`: requests whose prompt is computed and whose KV is still being sent.
//!
//! Life of a request here:
//! 1. `push`: its last chunk was handed to the sender, with the metadata row of its first token.
//! 2. `pop_done` sees `Success` once decode has every byte: this leg is answered, full pages stay
//!    in the cache, the other pages and the row are returned.
//! 3. Or it sees `Failed`: the reader gets the reason, and pages and row wait behind the fence.

use super::TransferEnd;
use super::fence::Fence;
use crate::engine::{FinishReason, RequestId, TokenLogprob};
use crate::req::Req;
use crate::resources::Resources;
use crate::timeline::stage_now;
use pd_compute::Backend;
use pd_protocol::KvPoll;
use pd_protocol::timeline::Stage;
use std::time::Instant;

/// SGLang's `disagg_prefill_inflight_queue`.
#[derive(Debug, Default)]
pub(crate) struct PrefillInflightQueue {
    entries: Vec<Inflight>,
}

#[derive(Debug)]
struct Inflight {
    req: Req,
    /// The first token, sent to the reader when the transfer has ended.
    first: TokenLogprob,
    finish: FinishReason,
    since: Instant,
}

// === impl PrefillInflightQueue ===

impl PrefillInflightQueue {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn push(&mut self, req: Req, first: TokenLogprob, finish: FinishReason) {
        self.entries.push(Inflight {
            req,
            first,
            finish,
            since: Instant::now(),
        });
    }

    /// Answers and ends the requests whose transfer has ended.
    pub(crate) fn pop_done<B: Backend>(
        &mut self,
        resources: &mut Resources<B>,
        end: &mut TransferEnd,
        fence: &mut Fence,
    ) {
        let done = |entry: &mut Inflight| entry.req.transfer.poll().is_terminal();
        for Inflight {
            mut req,
            first,
            finish,
            since,
        } in self.entries.extract_if(.., done)
        {
            resources.record_chunks(&req);
            if req.transfer.poll() == KvPoll::Failed {
                resources.metrics.counters.transfer_failed_reqs.inc();
                resources.fail(&req, &req.transfer.failure(), true);
                fence.take(&mut req, &mut resources.cache);
                continue;
            }
            resources
                .metrics
                .histograms
                .transfer_time
                .observe(since.elapsed().as_secs_f64());
            resources.record(&req, stage_now(Stage::LastWrite));
            req.emit(first, Some(finish));
            resources.commit_kv(&mut req);
            if req.transfer.released() {
                resources.release_kv(&mut req);
                let index = req.metadata_buffer_index.take();
                end.metadata_rows
                    .free(index.expect("an inflight request has a row"));
            } else {
                fence.take(&mut req, &mut resources.cache);
            }
        }
    }

    pub(crate) fn take(&mut self, id: RequestId) -> Option<Req> {
        let place = self.entries.iter().position(|entry| entry.req.id == id)?;
        Some(self.entries.remove(place).req)
    }

    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Req> {
        std::mem::take(&mut self.entries)
            .into_iter()
            .map(|entry| entry.req)
    }
}
