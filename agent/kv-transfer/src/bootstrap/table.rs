//! What a bootstrap server knows: data-parallel group → context → tensor → pipeline rank → address.

use crate::clock::Instant;
use pd_identity::PeerId;
use pd_protocol::bootstrap::{PrefillServerInfo, RankAddr, RouteRegistration};
use pd_protocol::compat::{Incompatible, must_equal};
use pd_protocol::labels::HEADER_BOOT_ID;
use pd_protocol::layout::{ParallelLayout, RankId};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

/// Ranks that one server accepts: beyond any deployment, within memory.
pub(crate) const RANKS_MAX: u64 = 65_536;
/// Rooms whose data-parallel rank is remembered, and for how long. Source: docs/sglang-protocol.md#timeouts.
pub(crate) const ROOMS_MAX: usize = 65_536;
pub(crate) const ROOM_TTL: Duration = Duration::from_secs(120);

pub(crate) struct RouteTable {
    /// Boot id of the process that serves this table; all ranks of a deployment share one.
    boot_id: String,
    ranks: BTreeMap<RankId, Registered>,
    first: Option<RouteRegistration>,
    dp_ranks: HashMap<u64, u32>,
    dp_ranks_age: VecDeque<(Instant, u64)>,
}

struct Registered {
    addr: RankAddr,
    /// The process that registered it, where peers have a key.
    process: Option<PeerId>,
    /// It gave the boot id of this table.
    named: bool,
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
    #[error("a layout has 1 to {RANKS_MAX} ranks, this one has {0}")]
    RankCount(u64),
    #[error(
        "this server belongs to boot {own} and the rank registers for boot {given}; a rank \
         registers with the server of its own deployment, which starts with it"
    )]
    OtherBoot { own: String, given: String },
    #[error(
        "rank {0:?} has registered with its boot id, so a registration without \
         {HEADER_BOOT_ID} does not replace it"
    )]
    Unnamed(RankId),
    #[error("rank {0:?} was registered by another process, which keeps it for as long as it lives")]
    OtherProcess(RankId),
    #[error(
        "rank {rank:?} of this boot is at {own}, not at {given}: a rank keeps its address for as long as its process lives"
    )]
    OtherAddress {
        rank: RankId,
        own: String,
        given: String,
    },
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

fn at(addr: &RankAddr) -> String {
    format!("{}:{}", addr.rank_ip, addr.rank_port)
}

// === impl RouteTable ===

impl RouteTable {
    pub(crate) fn new(boot_id: &str) -> Self {
        Self {
            boot_id: boot_id.to_owned(),
            ranks: BTreeMap::new(),
            first: None,
            dp_ranks: HashMap::new(),
            dp_ranks_age: VecDeque::new(),
        }
    }

    /// Enters a rank, or again. A refused one changes nothing. The boot id is no secret, so within one boot the first
    /// address stays: a stranger that knows the id cannot take a rank's place.
    pub(crate) fn register(
        &mut self,
        registration: RouteRegistration,
        boot_id: Option<&str>,
        process: Option<PeerId>,
    ) -> Result<(), RegisterError> {
        let (rank, parallel) = (registration.rank(), registration.parallel());
        if parallel.ranks() > RANKS_MAX || parallel.ranks() == 0 {
            return Err(RegisterError::RankCount(parallel.ranks()));
        }
        let within = rank.dp_rank < parallel.dp_size
            && rank.cp_rank < parallel.cp_size
            && rank.tp_rank < parallel.tp_size
            && rank.pp_rank < parallel.pp_size;
        if !within {
            return Err(RegisterError::RankOutOfLayout { rank, parallel });
        }
        // Ranks of this boot are not held to what others registered before them.
        let is_first_named = boot_id.is_some() && self.ranks.values().all(|known| !known.named);
        let first = self.first.as_ref().filter(|_| !is_first_named);
        if let Some(first) = first {
            check_agrees(first, &registration).map_err(RegisterError::Conflict)?;
        }
        self.check_boot(rank, boot_id)?;
        let addr = RankAddr {
            rank_ip: registration.rank_ip.clone(),
            rank_port: registration.rank_port,
        };
        self.check_address(rank, &addr)?;
        self.check_process(rank, process)?;
        if is_first_named {
            self.ranks.clear();
            self.first = None;
        }
        let named = boot_id.is_some();
        self.ranks.insert(
            rank,
            Registered {
                addr,
                process,
                named,
            },
        );
        self.first.get_or_insert(registration);
        Ok(())
    }

    /// A prefill that restarts brings a new server, so no rank registers here for another boot. A
    /// rank of a peer that sends no boot id is taken too, but not in the place of one that does.
    fn check_boot(&self, rank: RankId, boot_id: Option<&str>) -> Result<(), RegisterError> {
        match boot_id {
            Some(given) if given != self.boot_id => Err(RegisterError::OtherBoot {
                own: self.boot_id.clone(),
                given: given.to_owned(),
            }),
            None if self.ranks.get(&rank).is_some_and(|known| known.named) => {
                Err(RegisterError::Unnamed(rank))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn check_address(&self, rank: RankId, addr: &RankAddr) -> Result<(), RegisterError> {
        let known = self.ranks.get(&rank).filter(|known| known.named);
        match known {
            Some(known) if known.addr != *addr => Err(RegisterError::OtherAddress {
                rank,
                own: at(&known.addr),
                given: at(addr),
            }),
            Some(_) | None => Ok(()),
        }
    }

    fn check_process(&self, rank: RankId, process: Option<PeerId>) -> Result<(), RegisterError> {
        match self.ranks.get(&rank) {
            Some(known) if known.process != process => Err(RegisterError::OtherProcess(rank)),
            Some(_) | None => Ok(()),
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
