//! A world whose load is constant, to state facts about; the simulator has one that moves.

mod degraded;
mod estimates;
mod needs;
mod properties;
mod runs;
mod samples;
mod shortage;
mod simulator;
mod solutions;
mod steps;

use super::observations::{Replica, ReplicaState};
use super::per_role::{PerRole, ROLES};
use super::sample::{Counters, Gauges, Sample};
use super::spec::Bounds;
use super::{Decision, History, Observations, ScalingSpec, decide};
use pd_crds::PoolRole;
use pd_crds::scaling::ScalingMode;
use std::time::Duration;

const MODES: [ScalingMode; 4] = [
    ScalingMode::Auto,
    ScalingMode::Advise,
    ScalingMode::External,
    ScalingMode::Off,
];

/// Load and speeds that stay as they are; replicas share the load evenly.
#[derive(Clone, Debug)]
struct World {
    rate: f64,
    input: f64,
    output: f64,
    cached: f64,
    /// Prefill tokens per second in steps.
    speed: f64,
    itl_s: f64,
    kv_bytes: f64,
    link: f64,
    /// Of every replica.
    gauges: PerRole<Gauges>,
    states: PerRole<Vec<ReplicaState>>,
    router_queue: Option<f64>,
    /// Of each pool, how many of the first replicas are degraded.
    degraded: PerRole<usize>,
    /// Of what is healthy, the share that a degraded replica's speed is.
    slowed: f64,
    /// Replicas of prefill whose last sample is this old.
    silent: (usize, Duration),
    rollout_unready: bool,
    room_came: Option<Duration>,
}

fn mk_world(prefill: usize, decode: usize) -> World {
    World {
        rate: 10.0,
        input: 3000.0,
        output: 150.0,
        cached: 0.0,
        speed: 30_000.0,
        itl_s: 0.05,
        kv_bytes: 0.0,
        link: 0.0,
        gauges: PerRole {
            prefill: Gauges::default(),
            decode: Gauges {
                capacity_tokens: 100_000.0,
                ..Gauges::default()
            },
        },
        states: PerRole {
            prefill: vec![ReplicaState::Serving; prefill],
            decode: vec![ReplicaState::Serving; decode],
        },
        router_queue: Some(0.0),
        degraded: PerRole::default(),
        slowed: 0.5,
        silent: (0, Duration::ZERO),
        rollout_unready: false,
        room_came: None,
    }
}

fn mk_spec() -> ScalingSpec {
    ScalingSpec {
        mode: ScalingMode::Auto,
        bounds: PerRole::of(|_| Bounds { min: 1, max: 100 }),
        gpus: PerRole::of(|_| 1),
        max_gpus: None,
        shares_nodes: false,
        ttft_s: Some(2.0),
        tpot_s: Some(0.1),
        up_window: Duration::from_secs(10),
        down_window: Duration::from_secs(300),
    }
}

fn mk_pools(prefill: u32, decode: u32) -> PerRole<u32> {
    PerRole { prefill, decode }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

// === impl World ===

impl World {
    fn observe(&self, targets: PerRole<u32>, at: Duration) -> Observations {
        let mut replicas = Vec::new();
        for role in ROLES {
            let states = &self.states[role];
            let serves = |state: &&ReplicaState| **state == ReplicaState::Serving;
            let serving = states.iter().filter(serves).count().max(1);
            for (i, &state) in states.iter().enumerate() {
                let (silent, age) = self.silent;
                let is_silent = role == PoolRole::Prefill && i < silent;
                let age = if is_silent { age } else { Duration::ZERO };
                let degraded = i < self.degraded[role];
                let sample = self.sample(role, serving, degraded, at.saturating_sub(age));
                replicas.push(Replica {
                    uid: format!("{role:?}-{i}"),
                    role,
                    revision: "r1".to_owned(),
                    state,
                    sample: (state == ReplicaState::Serving).then_some(sample),
                });
            }
        }
        Observations {
            targets,
            replicas,
            router_queue: self.router_queue,
            rollout_unready: self.rollout_unready,
            room_came: self.room_came,
        }
    }

    fn sample(&self, role: PoolRole, serving: usize, degraded: bool, at: Duration) -> Sample {
        let speed = if degraded { self.slowed } else { 1.0 };
        let share = f64::from(u32::try_from(serving).unwrap());
        let requests = self.rate * at.as_secs_f64() / share;
        let prompt_tokens = requests * self.input;
        let (cached_tokens, kv_bytes) =
            (prompt_tokens * self.cached, prompt_tokens * self.kv_bytes);
        let mut counters = Counters {
            requests,
            prompts: requests,
            prompt_tokens,
            cached_tokens,
            kv_bytes,
            ..Counters::default()
        };
        match role {
            PoolRole::Prefill => {
                counters.prefill_tokens = prompt_tokens - cached_tokens;
                counters.busy_s = counters.prefill_tokens / (self.speed * speed);
                counters.kv_s = if self.link > 0.0 {
                    kv_bytes / self.link
                } else {
                    0.0
                };
            }
            PoolRole::Decode => {
                counters.answers = requests;
                counters.answer_tokens = requests * self.output;
                counters.intervals = counters.answer_tokens;
                counters.interval_s = counters.intervals * self.itl_s / speed;
            }
        }
        Sample {
            at,
            counters,
            gauges: self.gauges[role],
            degraded,
            busy_overlaps: false,
        }
    }

    /// Decides every second for so long, with fixed targets.
    fn decide_for(&self, targets: PerRole<u32>, spec: &ScalingSpec, long: u64) -> Decision {
        self.decide_on(targets, spec, 0..=long, History::default())
            .0
    }

    fn decide_on(
        &self,
        targets: PerRole<u32>,
        spec: &ScalingSpec,
        at: std::ops::RangeInclusive<u64>,
        history: History,
    ) -> (Decision, History) {
        let mut last = (None, history);
        for at in at.map(seconds) {
            let (decision, history) = decide(&self.observe(targets, at), last.1, spec, at);
            last = (Some(decision), history);
        }
        (last.0.expect("at least one second"), last.1)
    }
}
