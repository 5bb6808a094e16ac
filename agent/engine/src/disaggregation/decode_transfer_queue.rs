//! `DecodeTransferQueue`: requests whose KV is in transfer.
//!
//! Life of a request here:
//! 1. `push`: its pages and metadata row are offered to prefill.
//! 2. `pop_transferred` sees `Success` (every byte has arrived, and the transfer found our room in the
//!    row) and `released` (no write can land any more). The row is read, its room checked again (an
//!    old or foreign row would be another request's answer), and freed.
//! 3. `decode.rs::receive_first_token`: the first token, which prefill sampled, joins the request's tokens; its
//!    prompt counts as computed.
//! 4. Or `Failed`: the reader gets a retriable error, and the memory goes behind the fence.

use super::TransferEnd;
use super::fence::Fence;
use crate::engine::{RequestId, TokenLogprob};
use crate::req::{Req, Transfer};
use crate::resources::Resources;
use crate::timeline::stage_now;
use pd_compute::Backend;
use pd_protocol::KvPoll;
use pd_protocol::metadata::MetadataRow;
use pd_protocol::timeline::{Stage, StageEvent};
use std::time::Instant;

/// SGLang's `DecodeTransferQueue`.
#[derive(Debug, Default)]
pub(crate) struct DecodeTransferQueue {
    entries: Vec<Arriving>,
}

#[derive(Debug)]
struct Arriving {
    req: Req,
    since: Instant,
}

// === impl DecodeTransferQueue ===

impl DecodeTransferQueue {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Slots reserved for KV in transfer.
    pub(crate) fn prealloc_tokens(&self) -> usize {
        self.entries.iter().map(|entry| entry.req.prompt_len).sum()
    }

    pub(crate) fn push(&mut self, req: Req) {
        self.entries.push(Arriving {
            req,
            since: Instant::now(),
        });
    }

    /// Removes the requests whose KV has arrived, each with its first token.
    pub(crate) fn pop_transferred<B: Backend>(
        &mut self,
        resources: &mut Resources<B>,
        end: &mut TransferEnd,
        fence: &mut Fence,
    ) -> Vec<(Req, TokenLogprob)> {
        let mut transferred = Vec::new();
        let done = |entry: &mut Arriving| {
            let poll = entry.req.transfer.poll();
            poll == KvPoll::Failed || (poll == KvPoll::Success && entry.req.transfer.released())
        };
        for Arriving { mut req, since } in self.entries.extract_if(.., done) {
            let first = match req.transfer.poll() {
                KvPoll::Failed => Err(req.transfer.failure()),
                KvPoll::Bootstrapping
                | KvPoll::WaitingForInput
                | KvPoll::Transferring
                | KvPoll::Success => receive(&mut req, end),
            };
            match first {
                Ok(first) => {
                    let waited = since.elapsed().as_secs_f64();
                    resources.metrics.histograms.transfer_time.observe(waited);
                    record_transfer(resources, &req);
                    transferred.push((req, first));
                }
                Err(reason) => {
                    resources.metrics.counters.transfer_failed_reqs.inc();
                    resources.fail(&req, &reason, true);
                    fence.take(&mut req, &mut resources.cache);
                }
            }
        }
        transferred
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

/// Takes over prefill's results: the prompt's KV and the first token.
fn receive(req: &mut Req, end: &mut TransferEnd) -> Result<TokenLogprob, String> {
    let index = req
        .metadata_buffer_index
        .expect("an arriving request has a row");
    let room = req.room().expect("a decode request has a room");
    let row = end
        .metadata
        .read_row(index, room)
        .map_err(|error| error.to_string())?;
    let first = first_token(&row).ok_or("prefill's metadata row has no first token")?;
    req.metadata_buffer_index = None;
    end.metadata_rows.free(index);
    let cached = row
        .cached_tokens
        .first()
        .and_then(|&cached| usize::try_from(cached).ok());
    req.cached_tokens = cached.unwrap_or(0).min(req.prompt_len);
    let kv = req.kv.as_mut().expect("an arriving request holds pages");
    kv.len = req.prompt_len;
    Ok(first)
}

fn first_token(row: &MetadataRow) -> Option<TokenLogprob> {
    let top = row.output_top_logprobs.iter();
    Some(TokenLogprob {
        token: row.output_ids.first()?.cast_unsigned(),
        logprob: row.output_token_logprobs.first().map(|pair| pair.logprob),
        top: top
            .map(|pair| (pair.token_id.cast_unsigned(), pair.logprob))
            .collect(),
    })
}

fn record_transfer<B: Backend>(resources: &Resources<B>, req: &Req) {
    let Transfer::Receiver(receiver) = &req.transfer else {
        unreachable!("queued with a receiver");
    };
    let report = receiver.report();
    let bytes = report.map(|report| report.bytes);
    let duration = report.and_then(|report| u64::try_from(report.duration.as_nanos()).ok());
    resources
        .metrics
        .counters
        .kv_transfer_bytes
        .inc_by(bytes.unwrap_or(0));
    let event = stage_now(Stage::TransferDone);
    resources.record(
        req,
        StageEvent {
            bytes,
            duration_ns: duration,
            ..event
        },
    );
}
