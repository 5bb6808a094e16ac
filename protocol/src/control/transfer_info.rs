//! Decode to prefill, per request: the pages, state slots and row to fill.

use super::session::{Generation, SessionId};
use crate::{BootstrapRoom, Transport};
use serde::{Deserialize, Serialize};

/// SGLang's `TransferInfo`. Sent again until answered by a `Status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferInfo {
    pub session_id: SessionId,
    pub room: BootstrapRoom,
    pub generation: Generation,
    pub transport: Transport,
    pub metadata_buffer_index: u32,
    /// How many decode ranks prefill must hear of before it starts.
    pub required_dst_info_num: u32,
    /// Tokens that decode has already: whole pages, and fewer than the prompt has. Their pages are not listed; to a prefill
    /// that does not say `honours_prefix`, 0.
    #[serde(default)]
    pub decode_prefix_len: u32,
    /// This rank needs nothing from that one; it only counts.
    #[serde(default)]
    pub is_dummy: bool,
    /// Pages to fill behind that prefix, in the request's order; a binary frame of its own.
    #[serde(skip)]
    pub page_indices: Vec<u32>,
    /// Items to fill of each state of the layout; a binary frame each.
    #[serde(skip)]
    pub state_indices: Vec<Vec<u32>>,
}
