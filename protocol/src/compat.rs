//! Whether the KV bytes of a prefill and a decode rank mean the same. Sizes of the pools and the
//! split over ranks may differ; the transfer's plan bridges those.

use crate::layout::{KvGroup, KvLayout, StateLayout};
use std::collections::BTreeSet;

/// Why two sides do not fit: both values, so that the reader sees which to change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} differs: prefill has {prefill}, decode has {decode}")]
pub struct Incompatible {
    pub what: &'static str,
    pub prefill: String,
    pub decode: String,
}

/// What a side says of itself.
#[derive(Clone, Copy, Debug)]
pub struct KvMeaning<'a> {
    /// Digest of config, weights, tokenizer, KV settings and wire version.
    pub kv_compat: &'a str,
    pub layout: &'a KvLayout,
}

/// Checks a pair, first difference first.
///
/// # Errors
/// Names the first value that differs.
pub fn check_pair(prefill: KvMeaning<'_>, decode: KvMeaning<'_>) -> Result<(), Incompatible> {
    let (p, d) = (prefill.layout, decode.layout);
    must_equal("page_size", &p.page_size, &d.page_size)?;
    must_equal("page order", &p.order, &d.order)?;
    must_equal("number of KV groups", &p.groups.len(), &d.groups.len())?;
    for (p, d) in p.groups.iter().zip(&d.groups) {
        check_groups(p, d)?;
    }
    must_equal("number of states", &p.states.len(), &d.states.len())?;
    for (p, d) in p.states.iter().zip(&d.states) {
        check_states(p, d)?;
    }
    must_equal("metadata row", &p.metadata, &d.metadata)?;
    must_equal("kvCompat", &prefill.kv_compat, &decode.kv_compat)
}

fn check_groups(prefill: &KvGroup, decode: &KvGroup) -> Result<(), Incompatible> {
    must_equal("KV group", &prefill.name, &decode.name)?;
    must_equal("kv_cache_dtype", &prefill.dtype, &decode.dtype)?;
    must_equal("head_dim", &prefill.head_dim, &decode.head_dim)?;
    must_equal("tensors per layer", &prefill.tensors, &decode.tensors)?;
    must_equal(
        "KV heads of the model",
        &prefill.total_heads,
        &decode.total_heads,
    )
}

/// Which part of a state's tensors a rank has may differ, what they are may not.
fn check_states(prefill: &StateLayout, decode: &StateLayout) -> Result<(), Incompatible> {
    must_equal("state", &prefill.name, &decode.name)?;
    must_equal("state type", &prefill.state_type, &decode.state_type)?;
    let meanings = |state: &StateLayout| -> BTreeSet<(String, u32, u64)> {
        let tensors = state.tensors.iter();
        tensors
            .map(|t| (t.name.clone(), t.total_dim, t.layer_bytes))
            .collect()
    };
    must_equal(
        "state tensors (name, dim, bytes of a layer)",
        &meanings(prefill),
        &meanings(decode),
    )
}

/// Equality of one value of both sides, or who has what.
///
/// # Errors
/// The values differ.
pub fn must_equal<T: PartialEq + std::fmt::Debug>(
    what: &'static str,
    prefill: &T,
    decode: &T,
) -> Result<(), Incompatible> {
    if prefill == decode {
        return Ok(());
    }
    Err(Incompatible {
        what,
        prefill: format!("{prefill:?}"),
        decode: format!("{decode:?}"),
    })
}

#[cfg(test)]
mod tests;
