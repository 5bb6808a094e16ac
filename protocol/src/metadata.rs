//! `MetadataBuffers` on the wire: one contiguous row per request with what prefill knows and
//! decode needs, sent with the last chunk. Decode reads it as soon as every part of the room was counted; until then it may
//! be here in part, and before the pages. Source: docs/sglang-protocol.md#metadata.
//!
//! Fields stand in SGLang's order, each at least 64 bytes (the smallest write that every network
//! card takes). The room stands last.

use crate::BootstrapRoom;
use crate::layout::{KvDtype, LayoutError, in_range};
use serde::{Deserialize, Serialize};

/// Width of the narrow fields: 16 × 4 bytes = 64 bytes.
pub const NARROW: usize = 16;
/// Width of the top-logprob fields.
pub const TOP_LOGPROBS: usize = 128;
/// Least bytes of a field.
pub const FIELD_BYTES_MIN: u64 = 64;
/// `bootstrap_room` is 8 × u64: the room, then the lengths of the fields before it and the prompt's digest.
const ROOM_BYTES: usize = 64;

/// What the offsets in a row derive from; equal on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MetadataLayout {
    /// Elements of `output_hidden_states`; 0 where no draft model reads them.
    pub hidden_size: u32,
    pub hidden_dtype: KvDtype,
}

/// Byte offsets of the fields of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataOffsets {
    pub output_ids: usize,
    pub cached_tokens: usize,
    pub output_token_logprobs_val: usize,
    pub output_token_logprobs_idx: usize,
    pub output_top_logprobs_val: usize,
    pub output_top_logprobs_idx: usize,
    pub output_topk_p: usize,
    pub output_topk_index: usize,
    pub output_hidden_states: usize,
    pub bootstrap_room: usize,
    /// Length of a row.
    pub row_bytes: usize,
}

/// One row, typed. Lists may be shorter than their fields.
#[derive(Clone, Debug, PartialEq)]
pub struct MetadataRow {
    pub bootstrap_room: BootstrapRoom,
    /// First output token; up to [`NARROW`].
    pub output_ids: Vec<i32>,
    /// SGLang's slots: 0 total, 1 device, 2 host, 3 storage, 4 image, 5 audio, 6 video.
    pub cached_tokens: Vec<i32>,
    /// Log probability of each output token; up to [`NARROW`].
    pub output_token_logprobs: Vec<TokenLogprob>,
    /// The most likely tokens at the first position; up to [`TOP_LOGPROBS`].
    pub output_top_logprobs: Vec<TokenLogprob>,
    /// Draft model's best tokens; up to [`NARROW`].
    pub output_topk: Vec<(f32, i64)>,
    /// Bytes of the hidden states in the layout's dtype.
    pub output_hidden_states: Vec<u8>,
    /// [`prompt_digest`] of the tokens that prefill computed; 0 if it does not say.
    pub prompt_digest: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenLogprob {
    pub logprob: f32,
    pub token_id: i32,
}

/// Why a row cannot be written or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetadataError {
    #[error("metadata row: {field} has {len} elements, but its place holds {max}")]
    FieldTooLong {
        field: &'static str,
        len: u64,
        max: u64,
    },
    #[error("metadata row has {actual} bytes, but the layout says {expected}")]
    RowLength { actual: usize, expected: usize },
    #[error("metadata row of bootstrap_room {expected} has not arrived")]
    NotArrived { expected: BootstrapRoom },
    #[error("metadata row is of bootstrap_room {actual}, but {expected} was expected")]
    RoomMismatch {
        expected: BootstrapRoom,
        actual: u64,
    },
}

// === impl MetadataLayout ===

impl MetadataLayout {
    pub(crate) fn validate(&self) -> Result<(), LayoutError> {
        in_range("hidden_size", u64::from(self.hidden_size), 0, 1 << 24)
    }

    fn hidden_bytes(&self) -> usize {
        let bytes = u64::from(self.hidden_size) * self.hidden_dtype.size_bytes();
        usize::try_from(bytes).expect("a row fits memory")
    }

    pub fn offsets(&self) -> MetadataOffsets {
        let mut next = 0;
        let mut field = |bytes: usize| {
            let start = next;
            next = start + bytes.max(64).next_multiple_of(64);
            start
        };
        MetadataOffsets {
            output_ids: field(4 * NARROW),
            cached_tokens: field(4 * NARROW),
            output_token_logprobs_val: field(4 * NARROW),
            output_token_logprobs_idx: field(4 * NARROW),
            output_top_logprobs_val: field(4 * TOP_LOGPROBS),
            output_top_logprobs_idx: field(4 * TOP_LOGPROBS),
            output_topk_p: field(4 * NARROW),
            output_topk_index: field(8 * NARROW),
            output_hidden_states: field(self.hidden_bytes()),
            bootstrap_room: field(ROOM_BYTES),
            row_bytes: field(0),
        }
    }

    pub fn row_bytes(&self) -> usize {
        self.offsets().row_bytes
    }
}

// === impl MetadataRow ===

impl MetadataRow {
    /// A row with only the first token.
    pub fn new(bootstrap_room: BootstrapRoom, output_id: i32) -> Self {
        Self {
            bootstrap_room,
            output_ids: vec![output_id],
            cached_tokens: Vec::new(),
            output_token_logprobs: Vec::new(),
            output_top_logprobs: Vec::new(),
            output_topk: Vec::new(),
            output_hidden_states: Vec::new(),
            prompt_digest: 0,
        }
    }

    /// Bytes of the row.
    ///
    /// # Errors
    /// A list is longer than its field.
    pub fn encode(&self, layout: &MetadataLayout) -> Result<Vec<u8>, MetadataError> {
        let at = layout.offsets();
        let mut row = vec![0u8; at.row_bytes];
        let lens = self.checked_lens(layout)?;
        put(
            &mut row,
            at.output_ids,
            self.output_ids.iter().map(|v| v.to_le_bytes()),
        );
        put(
            &mut row,
            at.cached_tokens,
            self.cached_tokens.iter().map(|v| v.to_le_bytes()),
        );
        let token = &self.output_token_logprobs;
        put(
            &mut row,
            at.output_token_logprobs_val,
            token.iter().map(|v| v.logprob.to_le_bytes()),
        );
        put(
            &mut row,
            at.output_token_logprobs_idx,
            token.iter().map(|v| v.token_id.to_le_bytes()),
        );
        let top = &self.output_top_logprobs;
        put(
            &mut row,
            at.output_top_logprobs_val,
            top.iter().map(|v| v.logprob.to_le_bytes()),
        );
        put(
            &mut row,
            at.output_top_logprobs_idx,
            top.iter().map(|v| v.token_id.to_le_bytes()),
        );
        put(
            &mut row,
            at.output_topk_p,
            self.output_topk.iter().map(|v| v.0.to_le_bytes()),
        );
        put(
            &mut row,
            at.output_topk_index,
            self.output_topk.iter().map(|v| v.1.to_le_bytes()),
        );
        row[at.output_hidden_states..][..self.output_hidden_states.len()]
            .copy_from_slice(&self.output_hidden_states);
        let head = std::iter::once(self.bootstrap_room.get()).chain(lens);
        let head = head.chain([self.prompt_digest]);
        put(&mut row, at.bootstrap_room, head.map(u64::to_le_bytes));
        Ok(row)
    }

    fn checked_lens(&self, layout: &MetadataLayout) -> Result<[u64; 6], MetadataError> {
        let check = |field, len: usize, max: usize| {
            let (len, max) = (len as u64, max as u64);
            match len {
                len if len > max => Err(MetadataError::FieldTooLong { field, len, max }),
                len => Ok(len),
            }
        };
        Ok([
            check("output_ids", self.output_ids.len(), NARROW)?,
            check("cached_tokens", self.cached_tokens.len(), NARROW)?,
            check(
                "output_token_logprobs",
                self.output_token_logprobs.len(),
                NARROW,
            )?,
            check(
                "output_top_logprobs",
                self.output_top_logprobs.len(),
                TOP_LOGPROBS,
            )?,
            check("output_topk", self.output_topk.len(), NARROW)?,
            check(
                "output_hidden_states",
                self.output_hidden_states.len(),
                layout.hidden_bytes(),
            )?,
        ])
    }

    /// Reads the row of `room`. The bytes came from a peer: nothing in them is trusted.
    ///
    /// # Errors
    /// The row is another room's, has not arrived, or states lengths beyond its fields.
    pub fn decode(
        layout: &MetadataLayout,
        row: &[u8],
        room: BootstrapRoom,
    ) -> Result<Self, MetadataError> {
        let at = layout.offsets();
        if row.len() != at.row_bytes {
            return Err(MetadataError::RowLength {
                actual: row.len(),
                expected: at.row_bytes,
            });
        }
        let head: Vec<u64> = get(row, at.bootstrap_room, 8, u64::from_le_bytes);
        match head[0] {
            0 => return Err(MetadataError::NotArrived { expected: room }),
            actual if actual != room.get() => {
                return Err(MetadataError::RoomMismatch {
                    expected: room,
                    actual,
                });
            }
            _ => {}
        }
        let len = |i: usize, field, max: usize| {
            usize::try_from(head[i]).ok().filter(|&n| n <= max).ok_or({
                MetadataError::FieldTooLong {
                    field,
                    len: head[i],
                    max: max as u64,
                }
            })
        };
        let logprobs = |val, idx, n| {
            let values = get(row, val, n, f32::from_le_bytes);
            let ids = get(row, idx, n, i32::from_le_bytes);
            let pair = |(logprob, token_id)| TokenLogprob { logprob, token_id };
            values.into_iter().zip(ids).map(pair).collect()
        };
        let token_len = len(3, "output_token_logprobs", NARROW)?;
        let top_len = len(4, "output_top_logprobs", TOP_LOGPROBS)?;
        let topk_len = len(5, "output_topk", NARROW)?;
        let hidden_len = len(6, "output_hidden_states", layout.hidden_bytes())?;
        let topk_p = get(row, at.output_topk_p, topk_len, f32::from_le_bytes);
        let topk_index = get(row, at.output_topk_index, topk_len, i64::from_le_bytes);
        Ok(Self {
            bootstrap_room: room,
            output_ids: get(
                row,
                at.output_ids,
                len(1, "output_ids", NARROW)?,
                i32::from_le_bytes,
            ),
            cached_tokens: get(
                row,
                at.cached_tokens,
                len(2, "cached_tokens", NARROW)?,
                i32::from_le_bytes,
            ),
            output_token_logprobs: logprobs(
                at.output_token_logprobs_val,
                at.output_token_logprobs_idx,
                token_len,
            ),
            output_top_logprobs: logprobs(
                at.output_top_logprobs_val,
                at.output_top_logprobs_idx,
                top_len,
            ),
            output_topk: topk_p.into_iter().zip(topk_index).collect(),
            output_hidden_states: row[at.output_hidden_states..][..hidden_len].to_vec(),
            prompt_digest: head[7],
        })
    }
}

/// By which both legs of a request see whether they made the same tokens of it; never 0. FNV-1a over tokens instead of
/// bytes. Source: RFC 9923.
pub fn prompt_digest(tokens: &[u32]) -> u64 {
    let fold = |hash: u64, token: &u32| (hash ^ u64::from(*token)).wrapping_mul(0x100_0000_01b3);
    tokens.iter().fold(0xcbf2_9ce4_8422_2325, fold).max(1)
}

fn put<const N: usize>(row: &mut [u8], at: usize, values: impl Iterator<Item = [u8; N]>) {
    for (place, value) in row[at..].chunks_exact_mut(N).zip(values) {
        place.copy_from_slice(&value);
    }
}

fn get<const N: usize, T>(row: &[u8], at: usize, len: usize, read: fn([u8; N]) -> T) -> Vec<T> {
    row[at..]
        .chunks_exact(N)
        .take(len)
        .map(|place| read(place.try_into().expect("chunks of N bytes")))
        .collect()
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
