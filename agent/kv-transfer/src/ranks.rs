//! Which prefill ranks a decode rank fetches from, what of, and how many messages each side counts. Pure.
//! Source: docs/sglang-protocol.md#unequal-ranks, made general: a rank of `size` has the share `rank/size..(rank+1)/size` of the
//! heads, and two ranks meet where their shares do. Where there are more ranks than heads, a rank has the
//! whole head that its share begins in.

use pd_protocol::layout::{KvGroup, KvLayout, ParallelLayout, RankId, StateTensor};
use std::ops::Range;

/// Ranks of a pool that decode believes in.
const RANKS_MAX: u64 = 4096;

/// A rank and the pool that it is of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RankOf<'a> {
    pub(crate) rank: RankId,
    pub(crate) parallel: &'a ParallelLayout,
}

/// What a rank has of a model's heads, or of a state's dim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shard {
    pub(crate) start: u32,
    len: u32,
    total: u32,
}

/// A decode rank's source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SourceRank {
    pub(crate) rank: RankId,
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
    #[error("prefill says that it has {0} ranks; a pool has 1 to {RANKS_MAX}")]
    Ranks(u64),
    #[error("context parallelism is not supported: prefill {prefill}, decode {decode}")]
    ContextParallel { prefill: u32, decode: u32 },
}

pub(crate) fn resolve_rank_mapping(
    prefill: &ParallelLayout,
    decode: &ParallelLayout,
    own: RankId,
    layout: &KvLayout,
) -> Result<Vec<SourceRank>, MappingError> {
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
    let ranks = prefill.ranks();
    if !(1..=RANKS_MAX).contains(&ranks) {
        return Err(MappingError::Ranks(ranks));
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
    let source = |tp_rank: u32, pp_rank: u32| SourceRank {
        rank: RankId {
            dp_rank: 0,
            cp_rank: 0,
            tp_rank,
            pp_rank,
        },
        required_dst_info_num: meeting(tp_rank, p, d).len().try_into().unwrap_or(u32::MAX),
    };
    let of_stage = |pp_rank| tp_ranks.clone().map(move |tp_rank| (tp_rank, pp_rank));
    let all = stages.flat_map(of_stage);
    Ok(all
        .map(|(tp_rank, pp_rank)| source(tp_rank, pp_rank))
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

/// Whether decode rank `dst` gets a shard from prefill rank `src` that has it: a latent is whole on every
/// rank, a head of few on several, and then the first that it meets sends.
pub(crate) fn sends(shard: Shard, src: RankOf<'_>, dst: RankOf<'_>) -> bool {
    let size = src.parallel.tp_size.max(1);
    let first = shard.first_holder(src.rank.tp_rank, size);
    src.rank.tp_rank == first.max(met_by(dst, src).start)
}

/// Whether decode rank `dst` gets its metadata row from prefill rank `src`: the last stage knows the first
/// token.
pub(crate) fn brings_row(src: RankOf<'_>, dst: RankOf<'_>) -> bool {
    let stages = src.parallel.pp_size;
    let is_last = dst.parallel.pp_size == stages || stages.checked_sub(1) == Some(src.rank.pp_rank);
    is_last && src.rank.tp_rank == met_by(dst, src).start
}

/// Ranks of prefill's stage that a decode rank meets.
fn met_by(dst: RankOf<'_>, src: RankOf<'_>) -> Range<u32> {
    let size = dst.parallel.tp_size.max(1);
    meeting(dst.rank.tp_rank % size, size, src.parallel.tp_size.max(1))
}

// === impl Shard ===

impl Shard {
    pub(crate) fn of_group(group: &KvGroup) -> Self {
        Self {
            start: group.head_start,
            len: group.heads,
            total: group.total_heads,
        }
    }

    pub(crate) fn of_tensor(tensor: &StateTensor) -> Self {
        Self {
            start: tensor.dim_start,
            len: tensor.dim,
            total: tensor.total_dim,
        }
    }

    pub(crate) fn range(self) -> Range<u32> {
        self.start..self.start + self.len
    }

    /// The first rank of `size` that has what `rank` has of it.
    fn first_holder(self, rank: u32, size: u32) -> u32 {
        if self.len == self.total {
            0
        } else if self.total < size {
            let first = (u64::from(self.start) * u64::from(size)).div_ceil(u64::from(self.total));
            u32::try_from(first).unwrap_or(rank)
        } else {
            rank
        }
    }
}

#[cfg(test)]
mod tests;
