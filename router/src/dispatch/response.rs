//! An answer that has begun: decode's from its first byte on, and what belongs to a pair's. The
//! relay takes it apart.

use super::failure::LegFault;
use crate::client::Incoming;
use crate::logprobs::PromptLogprobs;
use crate::rooms::RoomRange;
use crate::timeline::Entry;
use crate::workers::{Lease, Worker};
use bytes::Bytes;
use http::response::Parts;
use std::pin::Pin;
use std::sync::Arc;

/// Decode's answer from its first byte on, or a unified worker's. Boxed at once: the futures
/// between a leg and the relay would copy its 272 bytes 13 times.
pub(crate) struct DecodeResponse {
    pub(crate) head: Parts,
    /// `None` if the body is empty.
    pub(crate) first: Option<Bytes>,
    pub(crate) rest: Incoming,
    pub(crate) lease: Lease,
    /// `None` for a unified worker's answer.
    pub(crate) pair: Option<PairResponse>,
}

/// What only a pair's answer has.
pub(crate) struct PairResponse {
    pub(crate) prefill: Arc<Worker>,
    /// Prefill's leg, if it has not ended.
    pub(crate) prefill_leg: Option<PrefillLeg>,
    /// With their timeline; `None` where no bootstrap server is asked.
    pub(crate) rooms: Option<(RoomRange, Entry)>,
    /// To be merged into decode's answer.
    pub(crate) logprobs: Option<PromptLogprobs>,
}

/// Prefill's leg to its end: its body if that was wanted, else nothing. Owned by the request;
/// dropping it before the end closes its connection, on which prefill gives the request up.
pub(crate) type PrefillLeg = Pin<Box<dyn Future<Output = Result<Bytes, LegFault>> + Send>>;

// === impl DecodeResponse ===

impl DecodeResponse {
    /// Whether the first frame was the whole body.
    pub(crate) fn is_complete(&self) -> bool {
        self.first.is_none() || self.rest.is_end_stream()
    }
}
