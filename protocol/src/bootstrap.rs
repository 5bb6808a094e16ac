//! JSON of the bootstrap server beside prefill. Field names are SGLang 0.5.23's, because its
//! clients refuse unknown ones; what we add (boot id, KV compatibility) travels in headers.

use crate::layout::{ParallelLayout, RankId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Body of `PUT /route`: one prefill rank states where it is and what it is part of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteRegistration {
    pub attn_tp_size: u32,
    pub attn_tp_rank: u32,
    pub attn_cp_size: u32,
    pub attn_cp_rank: u32,
    pub attn_dp_size: u32,
    pub attn_dp_rank: u32,
    pub pp_size: u32,
    pub pp_rank: u32,
    pub system_dp_size: u32,
    pub system_dp_rank: u32,
    pub rank_ip: String,
    pub rank_port: u16,
    pub page_size: u32,
    pub kv_cache_dtype: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_layout: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_balance_method: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefill_http_port: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decode_allocation_policy: Option<String>,
}

/// Answer to `GET /route` with every rank `-1`: the parallel layout of this prefill.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrefillServerInfo {
    pub attn_tp_size: u32,
    pub attn_cp_size: u32,
    pub dp_size: u32,
    pub pp_size: u32,
    pub page_size: u32,
    pub kv_cache_dtype: String,
    /// The data-parallel rank is `bootstrap_room % dp_size`.
    pub follow_bootstrap_room: bool,
    #[serde(default)]
    pub enable_dsa_cache_layer_split: bool,
    #[serde(default)]
    pub enable_kv_cache_sharding: bool,
    #[serde(default)]
    pub prefill_http_port: Option<u16>,
    #[serde(default)]
    pub decode_allocation_policy: Option<String>,
    /// Decode fills these six in for itself; on the wire they are null.
    #[serde(default)]
    pub target_tp_rank: Option<u32>,
    #[serde(default)]
    pub target_tp_ranks: Option<Vec<u32>>,
    #[serde(default)]
    pub target_cp_ranks: Option<Vec<u32>>,
    #[serde(default)]
    pub target_pp_ranks: Option<Vec<u32>>,
    #[serde(default)]
    pub required_dst_info_num: Option<u32>,
    #[serde(default)]
    pub required_prefill_response_num: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_layout: Option<String>,
}

/// Answer to `GET /route` for one rank: where its control socket listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RankAddr {
    pub rank_ip: String,
    pub rank_port: u16,
}

/// Query of `GET /route`. Releases before 0.5.23 sent three ranks under other names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteQuery {
    #[serde(alias = "target_dp_group")]
    pub prefill_dp_rank: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefill_cp_rank: Option<i64>,
    #[serde(alias = "engine_rank")]
    pub target_tp_rank: i64,
    pub target_pp_rank: i64,
}

/// Body of `POST /register_dp_rank`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterDpRank {
    pub bootstrap_room: u64,
    pub dp_rank: u32,
}

/// Body of `POST /query_dp_ranks`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryDpRanks {
    pub bootstrap_rooms: Vec<u64>,
}

/// Answer to it: room (as a string, as JSON keys are) to rank; unknown rooms are left out.
pub type DpRanks = BTreeMap<String, u32>;

/// What a `RouteQuery` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteTarget {
    Topology,
    Rank(RankId),
}

/// A query that mixes `-1` with ranks, or names a negative one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ranks must all be -1 (for the layout) or all be 0 or more (for one rank)")]
pub struct InvalidRouteQuery;

// === impl RouteRegistration ===

impl RouteRegistration {
    /// Groups with their own router entry: the system's if it has several, else attention's.
    pub fn parallel(&self) -> ParallelLayout {
        ParallelLayout {
            tp_size: self.attn_tp_size,
            cp_size: self.attn_cp_size,
            dp_size: if self.system_dp_size == 1 {
                self.attn_dp_size
            } else {
                self.system_dp_size
            },
            pp_size: self.pp_size,
        }
    }

    pub fn rank(&self) -> RankId {
        RankId {
            dp_rank: if self.system_dp_size == 1 {
                self.attn_dp_rank
            } else {
                self.system_dp_rank
            },
            cp_rank: self.attn_cp_rank,
            tp_rank: self.attn_tp_rank,
            pp_rank: self.pp_rank,
        }
    }
}

// === impl PrefillServerInfo ===

impl PrefillServerInfo {
    pub fn parallel(&self) -> ParallelLayout {
        ParallelLayout {
            tp_size: self.attn_tp_size,
            cp_size: self.attn_cp_size,
            dp_size: self.dp_size,
            pp_size: self.pp_size,
        }
    }
}

// === impl RouteQuery ===

impl RouteQuery {
    pub const TOPOLOGY: Self = Self {
        prefill_dp_rank: -1,
        prefill_cp_rank: Some(-1),
        target_tp_rank: -1,
        target_pp_rank: -1,
    };

    pub fn rank(rank: RankId) -> Self {
        Self {
            prefill_dp_rank: i64::from(rank.dp_rank),
            prefill_cp_rank: Some(i64::from(rank.cp_rank)),
            target_tp_rank: i64::from(rank.tp_rank),
            target_pp_rank: i64::from(rank.pp_rank),
        }
    }

    /// What is asked for; an absent context-parallel rank is `-1` with `-1`s and 0 with ranks.
    ///
    /// # Errors
    /// The ranks are neither all `-1` nor all valid.
    pub fn target(&self) -> Result<RouteTarget, InvalidRouteQuery> {
        let ranks = [
            self.prefill_dp_rank,
            self.target_tp_rank,
            self.target_pp_rank,
        ];
        if ranks.iter().all(|&r| r == -1) && self.prefill_cp_rank.unwrap_or(-1) == -1 {
            return Ok(RouteTarget::Topology);
        }
        let rank = |r: i64| u32::try_from(r).map_err(|_| InvalidRouteQuery);
        Ok(RouteTarget::Rank(RankId {
            dp_rank: rank(self.prefill_dp_rank)?,
            cp_rank: rank(self.prefill_cp_rank.unwrap_or(0))?,
            tp_rank: rank(self.target_tp_rank)?,
            pp_rank: rank(self.target_pp_rank)?,
        }))
    }
}

#[cfg(test)]
mod tests;
