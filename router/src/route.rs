//! Which workers serve a request: a prefill and a decode worker of one group, or a unified
//! worker where there is no pair. Choosing leases each, so that the next request sees the load of
//! this one.

use crate::clock::Instant;
use crate::policy::{Load, Policies, Policy};
use crate::workers::{Fleet, Group, Handover, Lease, Member, Worker};
use pd_protocol::Role;
use rand::Rng;
use std::sync::Arc;

/// The policies of all pools, with their state.
#[derive(Debug)]
pub(crate) struct Chooser {
    prefill: Policy,
    decode: Policy,
    unified: Policy,
}

/// What of a request decides where it goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand<'a> {
    pub(crate) model: Option<&'a str>,
    pub(crate) prompt_tokens: u64,
    pub(crate) output_tokens: u64,
    /// Workers that failed this request; taken again only if there is no other, and one that could not be
    /// reached not before a probe has.
    pub(crate) excluded: &'a [Arc<Worker>],
    pub(crate) now: Instant,
}

#[derive(Debug)]
pub(crate) enum Route {
    Pair(PrefillDecodePair),
    Unified(Lease),
}

/// SGLang's `PrefillDecodePair`.
#[derive(Debug)]
pub(crate) struct PrefillDecodePair {
    pub(crate) prefill: Lease,
    pub(crate) decode: Lease,
    pub(crate) handover: Handover,
    pub(crate) bootstrap_port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoRoute {
    #[error("the model {asked:?} is not served here; served are: {served}")]
    UnknownModel { asked: String, served: String },
    #[error(
        "no worker can take the request now: {0}; retry later (the admin API's GET /workers says why)"
    )]
    NoWorker(String),
}

// === impl Chooser ===

impl Chooser {
    pub(crate) fn new(names: Policies) -> Self {
        Self {
            prefill: Policy::new(names.prefill),
            decode: Policy::new(names.decode),
            unified: Policy::new(names.unified),
        }
    }

    /// Leases the workers that the pools' policies pick, with one policy per pool.
    ///
    /// # Errors
    /// `UnknownModel` if known workers serve others only, else `NoWorker` with what is missing.
    pub(crate) fn choose(
        &self,
        fleet: &Fleet,
        demand: &Demand<'_>,
        rng: &mut impl Rng,
    ) -> Result<Route, NoRoute> {
        let model = fleet.meant(demand.model);
        let demand = &Demand { model, ..*demand };
        let groups = fleet.serving(demand.model);
        if let (Some(asked), true) = (demand.model, groups.is_empty()) {
            let served: Vec<_> = fleet.known_models().into_iter().collect();
            if !served.is_empty() && !fleet.knows(asked) {
                return Err(NoRoute::UnknownModel {
                    asked: asked.to_owned(),
                    served: served.join(", "),
                });
            }
        }
        if let Some(pair) = self.choose_pair(groups.clone(), demand, rng) {
            return Ok(Route::Pair(pair));
        }
        let tokens = demand.prompt_tokens + demand.output_tokens;
        let unified = groups.iter().flat_map(|group| &group.unified);
        lease_preferred(&self.unified, unified, tokens, demand, rng)
            .map(|(_, lease)| Route::Unified(lease))
            .ok_or_else(|| NoRoute::NoWorker(missing(fleet, demand)))
    }

    fn choose_pair(
        &self,
        mut groups: Vec<&Group>,
        demand: &Demand<'_>,
        rng: &mut impl Rng,
    ) -> Option<PrefillDecodePair> {
        groups.retain(|group| {
            group.has_pair()
                && group
                    .decode
                    .iter()
                    .any(|member| member.worker.admits(demand.now))
        });
        while !groups.is_empty() {
            let pool = groups.iter().flat_map(|group| &group.prefill);
            let (member, prefill) =
                lease_preferred(&self.prefill, pool, demand.prompt_tokens, demand, rng)?;
            let group_idx = groups.iter().position(|group| {
                let mut pool = group.prefill.iter();
                pool.any(|other| Arc::ptr_eq(&other.worker, &member.worker))
            })?;
            let tokens = demand.prompt_tokens + demand.output_tokens;
            let pool = groups[group_idx].decode.iter();
            if let Some((_, decode)) = lease_preferred(&self.decode, pool, tokens, demand, rng) {
                return Some(PrefillDecodePair {
                    prefill,
                    decode,
                    handover: groups[group_idx].handover,
                    bootstrap_port: member.bootstrap_port,
                });
            }
            groups.swap_remove(group_idx);
        }
        None
    }
}

/// Leases the worker that `policy` picks; one that is excluded or under suspicion only if there is no
/// other, and one that is both never: it would fail as it just did.
fn lease_preferred<'a>(
    policy: &Policy,
    pool: impl Iterator<Item = &'a Member> + Clone,
    tokens: u64,
    demand: &Demand<'_>,
    rng: &mut impl Rng,
) -> Option<(&'a Member, Lease)> {
    let faults = |member: &&Member| {
        let mut excluded = demand.excluded.iter();
        let is_excluded = excluded.any(|other| Arc::ptr_eq(other, &member.worker));
        usize::from(is_excluded) + usize::from(member.worker.is_suspect())
    };
    let fresh = pool.clone().filter(|member| faults(member) == 0);
    lease_any(policy, fresh, tokens, demand.now, rng).or_else(|| {
        let failed = pool.filter(|member| faults(member) == 1);
        lease_any(policy, failed, tokens, demand.now, rng)
    })
}

fn lease_any<'a>(
    policy: &Policy,
    pool: impl Iterator<Item = &'a Member>,
    tokens: u64,
    now: Instant,
    rng: &mut impl Rng,
) -> Option<(&'a Member, Lease)> {
    let mut members: Vec<&Member> = pool.filter(|member| member.worker.admits(now)).collect();
    let mut loads: Vec<Load> = members.iter().map(|member| member.worker.load()).collect();
    loop {
        let idx = policy.pick(&loads, rng.next_u64())?;
        if let Some(lease) = members[idx].worker.lease(tokens, now) {
            return Some((members[idx], lease));
        }
        // Cordoned, or its one probe taken, since it was listed.
        members.swap_remove(idx);
        loads.swap_remove(idx);
    }
}

/// What keeps the fleet from serving, in words.
fn missing(fleet: &Fleet, demand: &Demand<'_>) -> String {
    let groups = fleet.serving(demand.model);
    let count = |role: Role| {
        let pools = groups.iter().map(|group| group.pool(role));
        pools.map(<[Member]>::len).sum::<usize>()
    };
    let (prefill, decode, unified) = (
        count(Role::Prefill),
        count(Role::Decode),
        count(Role::Unified),
    );
    match (prefill, decode, unified) {
        (0, 0, 0) => "no worker is ready".to_owned(),
        (0, 1.., 0) => "no prefill worker is ready".to_owned(),
        (1.., 0, 0) => "no decode worker is ready".to_owned(),
        _ if groups.iter().any(|group| group.is_routable()) => {
            "every worker that is ready rests after failures, or could not be reached".to_owned()
        }
        _ => "the ready prefill and decode workers differ in model or KV layout".to_owned(),
    }
}

#[cfg(test)]
mod tests;
