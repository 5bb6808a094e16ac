//! Which prefill ranks a decode rank fetches from, and how many messages each side counts. Pure.
//! Source: reference §1.4, made general: a rank of `size` has the share `rank/size..(rank+1)/size` of the
//! heads, and two ranks meet where their shares do. Where there are more ranks than heads, a rank has the
//! whole head that its share begins in.

use pd_protocol::layout::{KvLayout, ParallelLayout, RankId};
use std::ops::Range;

/// A decode rank's source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TargetRank {
    pub(crate) rank: RankId,
    /// What it has comes from another: a latent is whole on every rank, a head of few on several. It only
    /// counts.
    pub(crate) is_dummy: bool,
    /// How many decode ranks it must hear of before it starts.
    pub(crate) required_dst_info_num: u32,
}

/// Sizes that do not fit each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MappingError {
    #[error(
        "tensor-parallel size {size} of {side} does not fit the {heads} KV heads of group {group}: one \
         must divide the other"
    )]
    Heads {
        side: &'static str,
        size: u32,
        group: String,
        heads: u32,
    },
    #[error("decode's pipeline size {decode} must be 1 or prefill's {prefill}")]
    Pipeline { prefill: u32, decode: u32 },
    #[error("context parallelism is not supported: prefill {prefill}, decode {decode}")]
    ContextParallel { prefill: u32, decode: u32 },
}

pub(crate) fn resolve_rank_mapping(
    prefill: &ParallelLayout,
    decode: &ParallelLayout,
    own: RankId,
    layout: &KvLayout,
) -> Result<Vec<TargetRank>, MappingError> {
    let (p, d) = (prefill.tp_size.max(1), decode.tp_size.max(1));
    if prefill.cp_size > 1 || decode.cp_size > 1 {
        return Err(MappingError::ContextParallel {
            prefill: prefill.cp_size,
            decode: decode.cp_size,
        });
    }
    if decode.pp_size != 1 && decode.pp_size != prefill.pp_size {
        return Err(MappingError::Pipeline {
            prefill: prefill.pp_size,
            decode: decode.pp_size,
        });
    }
    for (side, size) in [("prefill", p), ("decode", d)] {
        check_heads(side, size, layout)?;
    }
    let stages = if decode.pp_size == prefill.pp_size {
        own.pp_rank..own.pp_rank + 1
    } else {
        0..prefill.pp_size
    };
    let tp_ranks = meeting(own.tp_rank % d, d, p);
    let target = |tp_rank: u32, pp_rank: u32| TargetRank {
        rank: RankId {
            dp_rank: 0,
            cp_rank: 0,
            tp_rank,
            pp_rank,
        },
        is_dummy: tp_rank != tp_ranks.start && same_heads(tp_rank - 1, tp_rank, p, layout),
        required_dst_info_num: meeting(tp_rank, p, d).len().try_into().unwrap_or(u32::MAX),
    };
    let of_stage = |pp_rank| tp_ranks.clone().map(move |tp_rank| (tp_rank, pp_rank));
    let all = stages.flat_map(of_stage);
    Ok(all
        .map(|(tp_rank, pp_rank)| target(tp_rank, pp_rank))
        .collect())
}

/// Ranks of a pool of `other` whose shares meet that of `rank` in a pool of `size`.
fn meeting(rank: u32, size: u32, other: u32) -> Range<u32> {
    let scaled = |rank: u32| u64::from(rank) * u64::from(other);
    let first = scaled(rank) / u64::from(size);
    let end = scaled(rank + 1).div_ceil(u64::from(size));
    let narrow = |rank: u64| u32::try_from(rank).expect("no more than `other`");
    narrow(first)..narrow(end)
}

/// Latents (one tensor per layer) are whole on every rank, so they fit any number of them.
fn check_heads(side: &'static str, size: u32, layout: &KvLayout) -> Result<(), MappingError> {
    let shared = layout.groups.iter().filter(|group| group.tensors > 1);
    let fits = |heads: u32| heads.is_multiple_of(size) || size.is_multiple_of(heads);
    match shared.into_iter().find(|group| !fits(group.total_heads)) {
        Some(group) => Err(MappingError::Heads {
            side,
            size,
            group: group.name.clone(),
            heads: group.total_heads,
        }),
        None => Ok(()),
    }
}

/// Whether two ranks of one pool have the same heads of every group.
fn same_heads(a: u32, b: u32, size: u32, layout: &KvLayout) -> bool {
    let first = |rank: u32, heads: u32| u64::from(rank) * u64::from(heads) / u64::from(size);
    layout.groups.iter().all(|group| {
        let heads = group.total_heads;
        group.tensors == 1 || first(a, heads) == first(b, heads)
    })
}

#[cfg(test)]
mod tests;
