//! How many replicas demand asks for, not yet in whole numbers.
//!
//! Prefill has to compute λ·ISL tokens a second. Decode holds, by Little's law, λ·OSL·ITL requests
//! at a time, each with its KV and, of a hybrid model, a slot of recurrent state. With ITL = base + slope·n on a replica that gets x tokens to
//! produce per second, n = x·ITL, so ITL = base / (1 − x·slope).

use super::decision::Reason;
use super::history::History;
use super::need::Need;
use super::observations::Observations;
use super::per_role::PerRole;
use super::sample::{Gauges, StateSlots};
use super::spec::ScalingSpec;
use pd_crds::PoolRole;
use std::time::Duration;

/// How full replicas may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Headroom {
    /// Of their speed, and of their KV pool.
    pub(crate) utilisation: f64,
    /// Of the goal for the time between tokens.
    pub(crate) tpot: f64,
    /// Replicas that go. A degraded one goes first, so that no other has to stand in for it.
    pub(crate) leaving: u32,
}

/// A pool grows when it would be fuller.
pub(crate) const GROW: Headroom = Headroom {
    utilisation: 0.85,
    tpot: 1.0,
    leaving: 0,
};
/// A pool shrinks when, one replica less, it would still not be fuller.
pub(crate) const SHRINK: Headroom = Headroom {
    utilisation: 0.70,
    tpot: 0.8,
    leaving: 1,
};
/// Of a link's speed; beyond it transfers wait for each other.
const LINK_UTILISATION: f64 = 0.7;
/// A queue is to be gone after this, where no goal says sooner.
const QUEUE_S: f64 = 10.0;
/// Of the goal for the first token, what is left for waiting however long the prompt takes.
const SLACK_MIN: f64 = 0.25;

/// Of the time between tokens, the least part that a replica's requests may cost each other: a goal
/// that one request alone misses is not met by any number of replicas.
const SHARED_MIN: f64 = 0.2;

/// Demand as the formulas use it.
#[derive(Clone, Copy, Debug)]
struct DemandModel {
    /// Requests per second.
    rate: f64,
    /// Prompt tokens of a request.
    input: f64,
    /// Of them, computed ones.
    computed: f64,
    /// Computed ones per second.
    tokens_per_s: f64,
    /// Tokens per second of a prefill replica.
    speed: f64,
    /// Seconds to compute a prompt.
    own_s: f64,
    /// Seconds to send their KV.
    link_s: f64,
}

/// What each pool needs; nothing of a pool of which too little is known.
pub(crate) fn needs(
    observations: &Observations,
    history: &History,
    spec: &ScalingSpec,
    headroom: Headroom,
    now: Duration,
) -> PerRole<Option<Need>> {
    let situation = Around {
        observations,
        history,
        spec,
        headroom,
        now,
    };
    PerRole::of(|role| {
        let need = match role {
            PoolRole::Prefill => situation.prefill(),
            PoolRole::Decode => situation.decode(),
        };
        Some(need?.beside(situation.degraded(role), observations.targets[role]))
    })
}

/// One of the memories that decode holds requests in.
#[derive(Clone, Copy, Debug)]
struct Memory {
    reason: Reason,
    /// What a replica may fill.
    room: f64,
    /// What requests that run take on all replicas.
    running: f64,
}

/// What a request takes of a [`Memory`].
#[derive(Clone, Copy, Debug)]
struct Share {
    /// While it runs.
    running: f64,
    /// Before, while its prompt is computed and sent.
    reserved: f64,
}

struct Around<'a> {
    observations: &'a Observations,
    history: &'a History,
    spec: &'a ScalingSpec,
    headroom: Headroom,
    now: Duration,
}

// === impl Around ===

impl Around<'_> {
    fn start_s(&self, role: PoolRole) -> f64 {
        let estimates = &self.history.estimates;
        estimates.start_time(role).as_secs_f64()
    }

    fn demand(&self, role: PoolRole) -> Option<DemandModel> {
        let estimates = &self.history.estimates;
        let arrivals = &estimates.arrivals;
        let rate = arrivals.forecast(self.start_s(role));
        let growth = if rate > 0.0 {
            rate / arrivals.rate()
        } else {
            1.0
        };
        let input = estimates.input_len()?;
        let computed = estimates.computed_len()?;
        let speed = estimates.prefill_speed()?;
        Some(DemandModel {
            rate,
            input,
            computed,
            tokens_per_s: arrivals.tokens_per_s() * growth,
            speed,
            own_s: computed / speed,
            link_s: input * estimates.link_s().unwrap_or(0.0),
        })
    }

    /// Replicas that serve, are degraded and stay.
    fn degraded(&self, role: PoolRole) -> u32 {
        let degraded = self.observations.degraded(role, self.now).len();
        let degraded = u32::try_from(degraded).unwrap_or(u32::MAX);
        degraded.saturating_sub(self.headroom.leaving)
    }

    fn is_silent(&self) -> bool {
        self.history.estimates.arrivals.rate() <= 0.0
    }

    fn prefill(&self) -> Option<Need> {
        let role = PoolRole::Prefill;
        let mut gauges = self.observations.gauges(role, self.now).peekable();
        gauges.peek()?;
        let queued: f64 = gauges.map(|gauges| gauges.queue_tokens).sum();
        let Some(demand) = self.demand(role) else {
            let idle = self.is_silent() && queued <= 0.0;
            return idle.then_some(Need::NONE);
        };
        let speed = demand.speed;
        let waiting = self.observations.router_queue.unwrap_or(0.0);
        let queued = queued + waiting * demand.computed;
        let tokens_per_s = demand.tokens_per_s;
        // What starts now can help once it has started; a queue that is gone by then needs no one.
        let within_s = self.queue_slack_s(&demand) + self.start_s(role);
        let computing = tokens_per_s / (self.headroom.utilisation * speed);
        let flow = [
            (Reason::PrefillTokens, computing),
            (Reason::KvLink, demand.on_links()),
        ];
        let waiting = (tokens_per_s + queued / within_s) / speed;
        Some(Need::largest(&flow, (Reason::PrefillQueue, waiting)))
    }

    /// Seconds that a prompt may wait.
    fn queue_slack_s(&self, demand: &DemandModel) -> f64 {
        self.spec.ttft_s.map_or(QUEUE_S, |ttft_s| {
            let left = ttft_s - demand.own_s - demand.link_s;
            left.max(SLACK_MIN * ttft_s)
        })
    }

    fn decode(&self) -> Option<Need> {
        let role = PoolRole::Decode;
        let gauges: Vec<_> = self.observations.gauges(role, self.now).collect();
        let capacity: f64 = gauges.iter().map(|gauges| gauges.capacity_tokens).sum();
        if capacity <= 0.0 {
            return None;
        }
        let used: f64 = gauges.iter().map(|gauges| gauges.used_tokens).sum();
        let running: f64 = gauges.iter().map(|gauges| gauges.running_tokens()).sum();
        let queued: f64 = gauges.iter().map(|gauges| gauges.queue_tokens).sum();
        // What waits because prefill is late, with memory reserved for it, is not decode's to mend.
        let own = if used > 0.0 { running / used } else { 1.0 };
        let tokens = Memory {
            reason: Reason::KvOccupancy,
            room: self.headroom.utilisation * capacity / count(gauges.len()),
            running,
        };
        let slots = self.slots(&gauges, own);
        let known = self.demand(role).zip(self.history.estimates.output_len());
        let flow = match known {
            Some((demand, output)) => self.decode_flow(&demand, output, tokens, slots),
            None if !self.is_silent() && running + queued <= 0.0 => return None,
            None => Vec::new(),
        };
        let at_once = known.and_then(|(_, output)| self.at_once(output));
        let waiting = queued * own * at_once.unwrap_or(1.0);
        let by_tokens = (tokens.reason, tokens.occupied(waiting));
        let by_slots = slots.map(|slots| {
            // How many requests it is that wait is known where their length is.
            let requests = known.map_or(0.0, |(demand, _)| waiting / demand.input.max(1.0));
            (slots.reason, slots.occupied(requests))
        });
        let held = match by_slots {
            Some(by_slots) if by_slots.1 > by_tokens.1 => by_slots,
            Some(_) | None => by_tokens,
        };
        Some(Need::largest(&flow, held))
    }

    /// Slots of recurrent state, of which requests that run hold the share `own`; none of a model without.
    fn slots(&self, gauges: &[&Gauges], own: f64) -> Option<Memory> {
        let slots: Vec<StateSlots> = gauges.iter().filter_map(|gauges| gauges.slots).collect();
        let total: f64 = slots.iter().map(|slots| slots.total).sum();
        let used: f64 = slots.iter().map(|slots| slots.used).sum();
        (total > 0.0).then(|| Memory {
            reason: Reason::StateSlots,
            room: self.headroom.utilisation * total / count(slots.len()),
            running: used * own,
        })
    }

    /// Of a queue that is to be gone in time, the share that has to be in memory together: all of
    /// it where answers take long, little where they make room for the next in time.
    fn at_once(&self, output: f64) -> Option<f64> {
        let answer_s = output * self.history.estimates.itl_s()?;
        let within_s = self.spec.ttft_s.unwrap_or(QUEUE_S) + self.start_s(PoolRole::Decode);
        Some(answer_s / (answer_s + within_s))
    }

    fn decode_flow(
        &self,
        demand: &DemandModel,
        output: f64,
        tokens: Memory,
        slots: Option<Memory>,
    ) -> Vec<(Reason, f64)> {
        let estimates = &self.history.estimates;
        let tokens_per_s = demand.rate * output;
        // A request's KV, from its first to its last token.
        let kv = demand.input + output / 2.0;
        let of_tokens = Share {
            running: kv,
            reserved: demand.input,
        };
        let of_slots = Share {
            running: 1.0,
            reserved: 1.0,
        };
        let memories = [Some((tokens, of_tokens)), slots.map(|it| (it, of_slots))];
        let memories = memories.into_iter().flatten();
        let mut needs = vec![(Reason::KvLink, demand.on_links())];
        let Some(line) = estimates.itl_line(kv) else {
            let itl_s = estimates.itl_s().or(self.spec.tpot_s);
            needs.extend(memories.filter_map(|(memory, share)| {
                let running = tokens_per_s * itl_s? * share.running;
                let held = running + demand.reserved(share);
                Some((memory.reason, held / memory.room))
            }));
            return needs;
        };
        needs.extend(memories.map(|(memory, share)| {
            let base = line.base_s * share.running / memory.room;
            let by_memory = tokens_per_s * (base + line.slope_s);
            (
                memory.reason,
                by_memory + demand.reserved(share) / memory.room,
            )
        }));
        let goal_s = self.spec.tpot_s.map(|tpot_s| tpot_s * self.headroom.tpot);
        needs.extend(goal_s.map(|goal_s| {
            let shared = (1.0 - line.base_s / goal_s).max(SHARED_MIN);
            (Reason::TokenInterval, tokens_per_s * line.slope_s / shared)
        }));
        needs
    }
}

// === impl Memory ===

impl Memory {
    /// Replicas for what runs and so much that waits.
    fn occupied(&self, waiting: f64) -> f64 {
        (self.running + waiting) / self.room
    }
}

// === impl DemandModel ===

impl DemandModel {
    /// Replicas whose links carry the KV.
    fn on_links(&self) -> f64 {
        self.rate * self.link_s / LINK_UTILISATION
    }

    /// Of a memory, what is reserved before prefill has computed and sent what goes into it.
    fn reserved(&self, share: Share) -> f64 {
        self.rate * share.reserved * (self.own_s + self.link_s)
    }
}

fn count(replicas: usize) -> f64 {
    f64::from(u32::try_from(replicas).unwrap_or(u32::MAX))
}
