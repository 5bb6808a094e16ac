//! `PrefillInflightQueue`: requests whose prompt is computed and whose KV is still being sent.
//!
//! Life of a request here:
//! 1. `push`: its last chunk was handed to the sender, with the metadata row of its first token.
//! 2. `pop_done` sees `Success` once decode has every byte: this leg is answered, full pages stay
//!    in the cache, the other pages and the row are returned.
//! 3. Or it sees `Failed`: the reader gets the reason, and pages and row wait behind the fence.

use super::TransferEnd;
use super::fence::Fence;
use super::outgoing::Outgoing;
use crate::active::Active;
use crate::command::RequestId;
use crate::request::{FinishReason, TokenLogprob};
use crate::resources::Resources;
use pd_protocol::KvPoll;
use std::time::Instant;

/// SGLang's `disagg_prefill_inflight_queue`.
#[derive(Debug, Default)]
pub(crate) struct PrefillInflightQueue {
    entries: Vec<Inflight>,
}

#[derive(Debug)]
pub(crate) struct Inflight {
    pub(crate) active: Active<Outgoing>,
    /// The first token, sent to the reader when the transfer has ended.
    pub(crate) first: TokenLogprob,
    pub(crate) finish: FinishReason,
    pub(crate) since: Instant,
}

// === impl PrefillInflightQueue ===

impl PrefillInflightQueue {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn push(&mut self, inflight: Inflight) {
        self.entries.push(inflight);
    }

    /// Answers and ends the requests whose transfer has ended.
    pub(crate) fn pop_done(
        &mut self,
        resources: &mut Resources,
        end: &mut TransferEnd,
        fence: &mut Fence,
    ) {
        let done = |entry: &mut Inflight| entry.active.with.sender.poll().is_terminal();
        for inflight in self.entries.extract_if(.., done) {
            let Inflight {
                mut active,
                first,
                finish,
                since,
            } = inflight;
            let sender = &active.with.sender;
            resources.chunks_sent(&active.req, sender);
            if sender.poll() == KvPoll::Failed {
                let reason = active.with.failure();
                resources.recorder.fail_transfer(&active.req, &reason);
                fence.take_active(active, &mut resources.cache);
                continue;
            }
            resources.recorder.sent(&active.req, since.elapsed());
            active.req.emit(first, Some(finish));
            if active.with.sender.released() {
                let (active, outgoing) = active.without();
                end.metadata_rows.free(outgoing.row);
                resources.release(active);
            } else {
                fence.take_active(active, &mut resources.cache);
            }
        }
    }

    pub(crate) fn take(&mut self, id: RequestId) -> Option<Inflight> {
        let mut entries = self.entries.iter();
        let place = entries.position(|entry| entry.active.req.id == id)?;
        Some(self.entries.remove(place))
    }

    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Inflight> {
        std::mem::take(&mut self.entries).into_iter()
    }
}
