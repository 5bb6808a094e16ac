//! Which prefill ranks a decode rank fetches from, and how many messages each side counts. Pure.
//! Source: reference §1.4.

use pd_protocol::layout::{KvLayout, ParallelLayout, RankId};

/// A decode rank's sources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RankMapping {
    pub(crate) targets: Vec<TargetRank>,
    /// How many decode ranks each prefill rank must hear of before it starts.
    pub(crate) required_dst_info_num: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TargetRank {
    pub(crate) rank: RankId,
    /// A latent is whole on every rank: one sends it, the others only count.
    pub(crate) is_dummy: bool,
}

/// Sizes that do not fit each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MappingError {
    #[error("tensor-parallel sizes {prefill} (prefill) and {decode} (decode) do not divide")]
    TensorParallel { prefill: u32, decode: u32 },
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
) -> Result<RankMapping, MappingError> {
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
    if !p.is_multiple_of(d) && !d.is_multiple_of(p) {
        return Err(MappingError::TensorParallel {
            prefill: p,
            decode: d,
        });
    }
    let tp_rank = own.tp_rank % d;
    let tp_ranks = if d >= p {
        let rank = tp_rank / (d / p);
        rank..rank + 1
    } else {
        tp_rank * (p / d)..(tp_rank + 1) * (p / d)
    };
    let stages = if decode.pp_size == prefill.pp_size {
        own.pp_rank..own.pp_rank + 1
    } else {
        0..prefill.pp_size
    };
    let latent = layout.groups.iter().all(|group| group.tensors == 1);
    let first = tp_ranks.start;
    let rank = |tp_rank: u32, pp_rank: u32| TargetRank {
        rank: RankId {
            dp_rank: 0,
            cp_rank: 0,
            tp_rank,
            pp_rank,
        },
        is_dummy: latent && tp_rank != first,
    };
    let ranks = |pp_rank| tp_ranks.clone().map(move |tp_rank| rank(tp_rank, pp_rank));
    Ok(RankMapping {
        targets: stages.flat_map(ranks).collect(),
        required_dst_info_num: (d / p).max(1),
    })
}

#[cfg(test)]
mod tests;
