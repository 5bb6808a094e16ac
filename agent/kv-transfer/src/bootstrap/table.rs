//! What a bootstrap server knows: data-parallel group → context → tensor → pipeline rank → address.

use pd_protocol::bootstrap::{PrefillServerInfo, RankAddr, RouteRegistration};
use pd_protocol::compat::{Incompatible, must_equal};
use pd_protocol::layout::{ParallelLayout, RankId};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

/// Ranks that one server accepts: beyond any deployment, within memory.
pub(crate) const RANKS_MAX: u64 = 65_536;
/// Rooms whose data-parallel rank is remembered, and for how long. Source: reference §1.8.
pub(crate) const ROOMS_MAX: usize = 65_536;
pub(crate) const ROOM_TTL: Duration = Duration::from_secs(120);

#[derive(Default)]
pub(crate) struct RouteTable {
    ranks: BTreeMap<RankId, Registered>,
    first: Option<RouteRegistration>,
    dp_ranks: HashMap<u64, u32>,
    dp_ranks_age: VecDeque<(Instant, u64)>,
}

struct Registered {
    addr: RankAddr,
    boot_id: Option<String>,
}

/// Why a registration is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RegisterError {
    #[error("this rank's layout contradicts the ranks that registered before: {}", text(.0))]
    Conflict(Incompatible),
    #[error("rank {rank:?} is not within the layout {parallel:?}")]
    RankOutOfLayout {
        rank: RankId,
        parallel: ParallelLayout,
    },
    #[error("a layout of {0} ranks is beyond the bound of {RANKS_MAX}")]
    TooManyRanks(u64),
}

/// Why a question has no answer yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LookupError {
    #[error("Prefill server not fully registered yet ({0} workers registered).")]
    NotReady(usize),
    #[error("no prefill rank {0:?} is registered here")]
    UnknownRank(RankId),
}

fn text(conflict: &Incompatible) -> String {
    format!(
        "{} was {}, now {}",
        conflict.what, conflict.prefill, conflict.decode
    )
}

impl RouteTable {
    /// Enters a rank or replaces it: a process that restarted registers again under its rank.
    pub(crate) fn register(
        &mut self,
        registration: RouteRegistration,
        boot_id: Option<String>,
    ) -> Result<(), RegisterError> {
        let (rank, parallel) = (registration.rank(), registration.parallel());
        if parallel.ranks() > RANKS_MAX || parallel.ranks() == 0 {
            return Err(RegisterError::TooManyRanks(parallel.ranks()));
        }
        let within = rank.dp_rank < parallel.dp_size
            && rank.cp_rank < parallel.cp_size
            && rank.tp_rank < parallel.tp_size
            && rank.pp_rank < parallel.pp_size;
        if !within {
            return Err(RegisterError::RankOutOfLayout { rank, parallel });
        }
        self.forget_predecessors(boot_id.as_ref());
        if let Some(first) = &self.first {
            check_agrees(first, &registration).map_err(RegisterError::Conflict)?;
        }
        let addr = RankAddr {
            rank_ip: registration.rank_ip.clone(),
            rank_port: registration.rank_port,
        };
        self.ranks.insert(rank, Registered { addr, boot_id });
        self.first.get_or_insert(registration);
        Ok(())
    }

    /// Ranks of one deployment share a boot id; another one means that all restarted, and what the
    /// old ones said counts no more. Without boot ids nothing is known.
    fn forget_predecessors(&mut self, boot_id: Option<&String>) {
        let stale =
            |known: &Registered| matches!((&known.boot_id, boot_id), (Some(a), Some(b)) if a != b);
        if self.ranks.values().any(stale) {
            self.ranks.clear();
            self.first = None;
        }
    }

    fn complete(&self) -> Result<&RouteRegistration, LookupError> {
        let registered = self.ranks.len();
        self.first
            .as_ref()
            .filter(|first| registered as u64 >= first.parallel().ranks())
            .ok_or(LookupError::NotReady(registered))
    }

    pub(crate) fn topology(&self) -> Result<PrefillServerInfo, LookupError> {
        let first = self.complete()?;
        let parallel = first.parallel();
        let follow = first.load_balance_method.as_deref();
        Ok(PrefillServerInfo {
            attn_tp_size: parallel.tp_size,
            attn_cp_size: parallel.cp_size,
            dp_size: parallel.dp_size,
            pp_size: parallel.pp_size,
            page_size: first.page_size,
            kv_cache_dtype: first.kv_cache_dtype.clone(),
            follow_bootstrap_room: follow.is_none_or(|m| m == "follow_bootstrap_room"),
            enable_dsa_cache_layer_split: false,
            enable_kv_cache_sharding: false,
            prefill_http_port: first.prefill_http_port,
            decode_allocation_policy: first.decode_allocation_policy.clone(),
            target_tp_rank: None,
            target_tp_ranks: None,
            target_cp_ranks: None,
            target_pp_ranks: None,
            required_dst_info_num: None,
            required_prefill_response_num: None,
            kv_layout: first.kv_layout.clone(),
        })
    }

    pub(crate) fn rank(&self, rank: RankId) -> Result<RankAddr, LookupError> {
        self.complete()?;
        let registered = self.ranks.get(&rank);
        registered
            .map(|known| known.addr.clone())
            .ok_or(LookupError::UnknownRank(rank))
    }

    pub(crate) fn set_dp_rank(&mut self, room: u64, dp_rank: u32, now: Instant) {
        while let Some(&(at, old)) = self.dp_ranks_age.front() {
            let expired = now.duration_since(at) > ROOM_TTL;
            if !expired && self.dp_ranks_age.len() < ROOMS_MAX {
                break;
            }
            self.dp_ranks_age.pop_front();
            self.dp_ranks.remove(&old);
        }
        if self.dp_ranks.insert(room, dp_rank).is_none() {
            self.dp_ranks_age.push_back((now, room));
        }
    }

    pub(crate) fn dp_rank(&self, room: u64) -> Option<u32> {
        self.dp_ranks.get(&room).copied()
    }
}

/// What all ranks of one deployment must say alike.
fn check_agrees(first: &RouteRegistration, next: &RouteRegistration) -> Result<(), Incompatible> {
    must_equal("parallel layout", &first.parallel(), &next.parallel())?;
    must_equal("page_size", &first.page_size, &next.page_size)?;
    must_equal(
        "kv_cache_dtype",
        &first.kv_cache_dtype,
        &next.kv_cache_dtype,
    )?;
    must_equal("kv_layout", &first.kv_layout, &next.kv_layout)?;
    must_equal(
        "decode_allocation_policy",
        &first.decode_allocation_policy,
        &next.decode_allocation_policy,
    )
}

#[cfg(test)]
pub(crate) mod tests;
