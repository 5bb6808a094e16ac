//! `DecodeTransferQueue`: requests whose KV is in transfer.
//!
//! Life of a request here:
//! 1. `push`: its pages and metadata row are offered to prefill.
//! 2. `pop_transferred` sees `Success` (every byte has arrived, and the transfer found our room in the
//!    row) and `released` (no write can land any more). The row is read, its room checked again (an
//!    old or foreign row would be another request's answer), and freed.
//! 3. `mode/decode.rs::receive_first_token`: the first token, which prefill sampled, joins the request's tokens; its
//!    prompt counts as computed, and its full pages are cached. No page is before: until here a write may land, or
//!    what has landed may be another room's.
//! 4. Or `Failed`: the reader gets a retriable error, and the memory goes behind the fence.

use super::TransferEnd;
use super::fence::Fence;
use super::transfer::failure;
use crate::active::Active;
use crate::command::RequestId;
use crate::kvcache::pool::{KvCache, ReqKv};
use crate::recorder::Recorder;
use crate::req::Req;
use crate::request::TokenLogprob;
use crate::resources::Resources;
use crate::speculate::last_entry::LastEntry;
use crate::speculate::layer::DraftLayer;
use pd_kv_transfer::KvReceiver;
use pd_protocol::KvPoll;
use pd_protocol::metadata::{MetadataRow, prompt_digest};
use std::time::Instant;

/// SGLang's `DecodeTransferQueue`.
#[derive(Debug, Default)]
pub(crate) struct DecodeTransferQueue {
    entries: Vec<Arriving>,
}

/// A request with memory for what arrives.
#[derive(Debug)]
pub(crate) struct Arriving {
    pub(crate) req: Req,
    pub(crate) receiver: KvReceiver,
    pub(crate) kv: ReqKv,
    /// SGLang's `metadata_buffer_index`.
    pub(crate) row: u32,
    pub(crate) since: Instant,
}

// === impl DecodeTransferQueue ===

impl DecodeTransferQueue {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Req> + Clone {
        self.entries.iter().map(|entry| &entry.req)
    }

    /// Slots reserved for KV in transfer.
    pub(crate) fn prealloc_tokens(&self) -> usize {
        let reserved = |entry: &Arriving| entry.req.prompt_len - entry.kv.cached_len();
        self.entries.iter().map(reserved).sum()
    }

    pub(crate) fn push(&mut self, arriving: Arriving) {
        self.entries.push(arriving);
    }

    /// Removes the requests whose KV has arrived, each with its first token.
    pub(crate) fn pop_transferred(
        &mut self,
        resources: &mut Resources,
        end: &mut TransferEnd,
        fence: &mut Fence,
    ) -> Vec<(Active, TokenLogprob)> {
        let mut transferred = Vec::new();
        let done = |entry: &mut Arriving| match entry.receiver.poll() {
            KvPoll::Failed => true,
            KvPoll::Success => entry.receiver.released(),
            KvPoll::Bootstrapping | KvPoll::WaitingForInput | KvPoll::Transferring => false,
        };
        for mut arriving in self.entries.extract_if(.., done) {
            match arriving.take_first_token(end) {
                Ok((first, state)) => {
                    let mut active = arriving.arrived(end, &resources.recorder);
                    let entry = last_entry(resources.draft_layer.as_ref(), state);
                    active.req.set_last_entry(entry);
                    transferred.push((active, first));
                }
                Err(reason) => {
                    resources.recorder.fail_transfer(&arriving.req, &reason);
                    arriving.fence(fence, &mut resources.cache);
                }
            }
        }
        transferred
    }

    pub(crate) fn take(&mut self, id: RequestId) -> Option<Arriving> {
        let place = self.entries.iter().position(|entry| entry.req.id == id)?;
        Some(self.entries.remove(place))
    }

    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Arriving> {
        std::mem::take(&mut self.entries).into_iter()
    }
}

// === impl Arriving ===

impl Arriving {
    /// Holds the memory until no peer can touch it.
    pub(crate) fn fence(self, fence: &mut Fence, cache: &mut KvCache) {
        fence.take_arriving(self.receiver.into(), self.kv, self.row, cache);
    }

    /// Prefill's results, the first token and what a draft layer made of the entry before it, or why there are none.
    fn take_first_token(&mut self, end: &TransferEnd) -> Result<(TokenLogprob, Vec<u8>), String> {
        if self.receiver.poll() == KvPoll::Failed {
            return Err(failure(self.receiver.failure_reason()));
        }
        let room = self.req.room().expect("a decode request has a room");
        let row = end.metadata.read_row(self.row, room);
        let row = row.map_err(|error| error.to_string())?;
        let first = first_token(&row).ok_or("prefill's metadata row has no first token")?;
        let cached = row.cached_tokens.first();
        let cached = cached.and_then(|&cached| usize::try_from(cached).ok());
        self.req.cached_tokens = cached.unwrap_or(0).min(self.req.prompt_len);
        self.compare_prompts(&row);
        Ok((first, row.output_hidden_states))
    }

    /// KV of another prompt is of no use to others. The legs of a request render its chat each for themselves.
    fn compare_prompts(&mut self, row: &MetadataRow) {
        let prompt = &self.req.tokens[..self.req.prompt_len];
        if row.prompt_digest == prompt_digest(prompt) {
            return;
        }
        self.kv.keep_private();
        if row.prompt_digest != 0 {
            tracing::warn!(
                rid = %self.req.rid,
                "prefill has computed other tokens than decode made of the prompt; give both the same tokenizer and chat template"
            );
        }
    }

    /// The prompt's KV is here, and nothing writes to it any more: the transfer's end and the row are returned.
    fn arrived(self, end: &mut TransferEnd, recorder: &Recorder) -> Active {
        let Self {
            req,
            receiver,
            mut kv,
            row,
            since,
        } = self;
        recorder.received(&req, &receiver, kv.cached_len(), since.elapsed());
        end.metadata_rows.free(row);
        kv.received(req.prompt_len);
        Active::new(req, kv, ())
    }
}

/// What prefill's draft layer made of the last entry, if it sent that.
fn last_entry(layer: Option<&DraftLayer>, state: Vec<u8>) -> Option<LastEntry> {
    layer?
        .is_state(&state)
        .then_some(LastEntry::Received(state))
}

fn first_token(row: &MetadataRow) -> Option<TokenLogprob> {
    let top = row.output_top_logprobs.iter();
    Some(TokenLogprob {
        token: row.output_ids.first()?.cast_unsigned(),
        logprob: row.output_token_logprobs.first().map(|pair| pair.logprob),
        top: top
            .map(|pair| (pair.token_id.cast_unsigned(), pair.logprob))
            .collect(),
        // The row has no place for them; docs/decisions/0006.
        asked: Vec::new(),
    })
}
