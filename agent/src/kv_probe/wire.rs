//! Decode's requests to prefill, on the bootstrap server's port: `GET /kv-probe` for its pool,
//! `POST` for pages.

use super::clock::Span;
use pd_protocol::BootstrapRoom;
use serde::{Deserialize, Serialize};

pub(super) const PATH: &str = "/kv-probe";
/// Replaces a model's digest, so that a probe never pairs with a serving worker.
pub(super) const KV_COMPAT: &str = "kv-probe-1";

/// Prefill's pool.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Offer {
    pub(super) pages: u32,
}

/// Asks prefill to send these pages to this room, which decode has opened, and to answer once
/// decode has confirmed them.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SendRequest {
    pub(super) bootstrap_room: BootstrapRoom,
    /// Indices in prefill's pool.
    pub(super) page_indices: Vec<u32>,
}

/// From `KvSender::send` to `KvPoll::Success`, by prefill's clocks.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Sent(pub(super) Span);
