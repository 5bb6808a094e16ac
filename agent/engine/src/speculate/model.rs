//! `DraftModel`: drafts of another, smaller model with the same vocabulary: SGLang's `STANDALONE`.
//!
//! It has KV of its own, in pages that lie where the target's do: position i of a request is in the same page and
//! slot of both pools, so that a request with pages for the target has them for drafts. It computes every token of a
//! request itself, when drafts are first wanted and as the answer grows, since neither a prefix cache nor a peer has
//! its KV (docs/decisions/0087).
//!
//! A draft is drawn as the target draws that token, with the same noise: where both see the same probabilities they
//! draw the same token, however random.

use super::last_entry::LastEntry;
use crate::kvcache::ReqPoolIdx;
use crate::kvcache::req_to_token::ReqToTokenPool;
use crate::ranks::Ranks;
use crate::req::Req;
use crate::step::DraftStepBuilder;
use pd_compute::{ComputeError, NO_TOKEN};

#[derive(Debug)]
pub(crate) struct DraftModel {
    ranks: Box<dyn Ranks>,
    builder: DraftStepBuilder,
    /// Of a step.
    max_tokens: usize,
}

/// Drafts that a request wants.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) req: &'a Req,
    pub(crate) idx: ReqPoolIdx,
    /// Tokens whose KV the draft model has; moves with what is computed.
    pub(crate) draft_len: &'a mut usize,
    /// Where the model's own layer drafts: what it made of the last entry, if that is there.
    pub(crate) entry: Option<&'a LastEntry>,
    /// Drafts at most; the request has pages for their positions.
    pub(crate) max: usize,
}

// === impl Wanted ===

impl Wanted<'_> {
    /// Whether the draft model has all but what the last step drew, or computes nothing of the request.
    pub(crate) fn is_steady(&self) -> bool {
        self.max == 0 || self.req.tokens.len() - *self.draft_len <= self.max + 1
    }
}

// === impl DraftModel ===

impl DraftModel {
    /// `ranks` take steps of up to `max_tokens` tokens.
    pub(crate) fn new(ranks: Box<dyn Ranks>, max_tokens: usize) -> Self {
        Self {
            ranks,
            builder: DraftStepBuilder::default(),
            max_tokens,
        }
    }

    /// Drafts for each of `wanted`, one list each; it is empty for a request whose tokens are not all computed yet,
    /// because they are more than a step takes.
    ///
    /// # Errors
    /// When the device faulted.
    pub(crate) fn draft(
        &mut self,
        mut wanted: Vec<Wanted<'_>>,
        req_to_token: &ReqToTokenPool,
    ) -> Result<Vec<Vec<u32>>, ComputeError> {
        let mut drafts = vec![Vec::new(); wanted.len()];
        let mut drawing = self.catch_up(&mut wanted, req_to_token)?;
        for place in 0.. {
            if drawing.is_empty() {
                break;
            }
            let drawn = self.ranks.wait()?.tokens;
            for (&index, &token) in drawing.iter().zip(&drawn) {
                if token != NO_TOKEN {
                    drafts[index].push(token);
                }
            }
            let goes_on =
                |&index: &usize| wanted[index].max > place + 1 && drafts[index].len() == place + 1;
            let next: Vec<usize> = drawing.iter().copied().filter(goes_on).collect();
            for &index in &next {
                let Wanted {
                    req,
                    idx,
                    draft_len,
                    ..
                } = &mut wanted[index];
                self.builder
                    .push_draft(req, &drafts[index], *idx, req_to_token);
                **draft_len += 1;
            }
            if let Some(plan) = self.builder.finish() {
                self.ranks.launch(&plan)?;
            }
            drawing = next;
        }
        Ok(drafts)
    }

    /// Computes what the draft model has not yet of each request. Returns those of which it has everything, for which
    /// a step in flight draws the first draft.
    fn catch_up(
        &mut self,
        wanted: &mut [Wanted<'_>],
        req_to_token: &ReqToTokenPool,
    ) -> Result<Vec<usize>, ComputeError> {
        let mut left = self.max_tokens;
        let mut drawing = Vec::new();
        for (index, wanted) in wanted.iter_mut().enumerate() {
            let from = *wanted.draft_len;
            let end = wanted.req.tokens.len().min(from + left);
            if wanted.max == 0 || from == end {
                continue;
            }
            left -= end - from;
            self.builder
                .push_tokens(wanted.req, from..end, wanted.idx, req_to_token);
            *wanted.draft_len = end;
            if end == wanted.req.tokens.len() {
                drawing.push(index);
            }
        }
        if let Some(plan) = self.builder.finish() {
            self.ranks.launch(&plan)?;
            if drawing.is_empty() {
                self.ranks.wait()?;
            }
        }
        Ok(drawing)
    }
}
