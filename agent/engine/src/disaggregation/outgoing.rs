//! `Outgoing`: prefill's end of a request's transfer, and what it sends: full pages after each chunk, at last the rest
//! with the metadata row of the first token.

use super::TransferEnd;
use super::transfer::failure;
use crate::active::Active;
use crate::observe::Point;
use crate::req::Req;
use crate::request::TokenLogprob;
use crate::resources::Resources;
use pd_kv_transfer::{KvSender, LastChunk};
use pd_protocol::metadata::{MetadataRow, TokenLogprob as RowLogprob, prompt_digest};

/// What a request whose decode side is known keeps for its transfer.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) sender: KvSender,
    /// SGLang's `metadata_buffer_index`.
    pub(crate) row: u32,
    pages_sent: usize,
}

// === impl Outgoing ===

impl Outgoing {
    pub(crate) fn new(sender: KvSender, row: u32) -> Self {
        Self {
            sender,
            row,
            pages_sent: 0,
        }
    }

    /// Why the transfer failed.
    pub(crate) fn failure(&self) -> String {
        failure(self.sender.failure_reason())
    }

    fn send(&mut self, pages: &[u32], last: Option<LastChunk>) {
        let unsent = &pages[self.pages_sent..];
        if !unsent.is_empty() || last.is_some() {
            self.sender.send(unsent, last);
            self.pages_sent = pages.len();
        }
    }
}

/// Sends the pages that a chunk has filled.
pub(crate) fn send_full_pages(resources: &mut Resources, active: &mut Active<Outgoing>) {
    let Active { req, kv, with, .. } = active;
    let full = kv.len / resources.cache.page_size();
    resources.observe_pages(req, kv, with.pages_sent..full, None, Point::BeforeSend);
    let pages = resources.cache.page_ids(kv);
    with.send(&pages[..full], None);
}

/// Sends everything that is left, together with the metadata row. `draft_state` is what a draft layer made of the last
/// entry, empty without one.
pub(crate) fn send_rest(
    end: &TransferEnd,
    resources: &mut Resources,
    active: &mut Active<Outgoing>,
    first: &TokenLogprob,
    draft_state: Vec<u8>,
) {
    let Active { req, kv, with, .. } = active;
    let row = MetadataRow {
        output_hidden_states: draft_state,
        ..metadata_row(req, first)
    };
    let written = end.metadata.write_row(with.row, &row);
    written.expect("rows are sized for every field's longest value");
    let pages = resources.cache.page_ids(kv);
    let rest = with.pages_sent..pages.len();
    resources.observe_pages(req, kv, rest, kv.slot(), Point::BeforeSend);
    let state_indices = end.state_indices(&resources.cache, kv);
    with.send(&pages, Some(LastChunk { state_indices }));
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
    row.prompt_digest = prompt_digest(&req.tokens[..req.prompt_len]);
    row.cached_tokens = vec![to_i32(req.cached_tokens), to_i32(req.cached_tokens)];
    row.output_token_logprobs = first
        .logprob
        .map(|p| pair(first.token, p))
        .into_iter()
        .collect();
    row.output_top_logprobs = first.top.iter().map(|&(token, p)| pair(token, p)).collect();
    row
}
