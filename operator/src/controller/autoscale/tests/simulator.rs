//! A cluster of replicas that serve requests by simple laws: prefill computes so many tokens a
//! second, first come, first served; decode's time between tokens is a line in requests and KV.
//! Arrivals are evenly spaced, so a run is the same every time.

use super::super::observations::{Replica, ReplicaState};
use super::super::per_role::{PerRole, ROLES};
use super::super::sample::{Counters, Gauges, Sample};
use super::super::{Decision, History, Observations, ScalingSpec, decide};
use pd_crds::PoolRole;
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::fmt::Write;
use std::time::Duration;

const STEP_S: f64 = 0.1;
const STEPS_PER_S: u32 = 10;
const ROW_EVERY_S: u32 = 120;
const START: Duration = Duration::from_secs(40);
const PREFILL_TOKENS_PER_S: f64 = 10_000.0;
const CAPACITY_TOKENS: f64 = 120_000.0;

#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) rate: f64,
    pub(super) input: f64,
    pub(super) output: f64,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    arrived_s: f64,
    input: f64,
    output: f64,
    /// Prompt tokens to compute, then answer tokens to produce.
    left: f64,
}

#[derive(Debug)]
struct Pod {
    uid: String,
    role: PoolRole,
    state: ReplicaState,
    since: Duration,
    waiting: VecDeque<Request>,
    running: Vec<Request>,
    counters: Counters,
    /// Its GPU runs at half its clock, and says so.
    slowed: bool,
}

/// What has been measured since the last row.
#[derive(Debug, Default)]
struct Measured {
    ttfts: Vec<f64>,
    itl: Vec<f64>,
}

pub(super) struct Simulator {
    spec: ScalingSpec,
    /// GPUs that nodes have.
    pub(super) node_gpus: u32,
    pub(super) targets: PerRole<u32>,
    pods: Vec<Pod>,
    routed: VecDeque<Request>,
    history: History,
    steps: u32,
    due: f64,
    created: u32,
    measured: Measured,
    pub(super) table: String,
    pub(super) arrived: u32,
    pub(super) answered: u32,
    pub(super) changes: u32,
    pub(super) most_gpus: u32,
    /// Mean time to the first token over the last row.
    pub(super) ttft_s: f64,
    pub(super) itl_s: f64,
}

// === impl Simulator ===

impl Simulator {
    /// Starts with the least of both pools, serving.
    pub(super) fn new(spec: ScalingSpec, node_gpus: u32) -> Self {
        let targets = PerRole::of(|role| spec.bounds[role].min);
        let mut simulator = Self {
            spec,
            node_gpus,
            targets,
            pods: Vec::new(),
            routed: VecDeque::new(),
            history: History::default(),
            steps: 0,
            due: 0.0,
            created: 0,
            measured: Measured::default(),
            table: String::new(),
            arrived: 0,
            answered: 0,
            changes: 0,
            most_gpus: 0,
            ttft_s: 0.0,
            itl_s: 0.0,
        };
        let header = "   time  req/s  in+out    prefill  decode    TTFT     TPOT   why";
        let _infallible = writeln!(simulator.table, "{header}");
        simulator.follow_targets();
        for pod in &mut simulator.pods {
            pod.state = ReplicaState::Serving;
        }
        simulator
    }

    /// Lives on under a load for so many seconds.
    pub(super) fn run(&mut self, load: Load, seconds: u32) {
        for _ in 0..seconds {
            for _ in 0..STEPS_PER_S {
                self.serve(load);
                self.steps += 1;
            }
            self.follow_pods();
            self.decide(load);
        }
    }

    /// From now on one that serves is slow.
    pub(super) fn slow_one(&mut self, role: PoolRole) {
        let serves = |pod: &&mut Pod| pod.role == role && pod.state == ReplicaState::Serving;
        let one = self.pods.iter_mut().find(serves);
        one.expect("one serves").slowed = true;
    }

    pub(super) fn slowed(&self) -> usize {
        self.pods.iter().filter(|pod| pod.slowed).count()
    }

    pub(super) fn serving(&self, role: PoolRole) -> usize {
        self.of(role, ReplicaState::Serving).count()
    }

    /// Requests that are somewhere.
    pub(super) fn in_flight(&self) -> usize {
        let held = |pod: &Pod| pod.waiting.len() + pod.running.len();
        self.routed.len() + self.pods.iter().map(held).sum::<usize>()
    }

    fn of(&self, role: PoolRole, state: ReplicaState) -> impl Iterator<Item = &Pod> {
        let of = move |pod: &&Pod| pod.role == role && pod.state == state;
        self.pods.iter().filter(of)
    }

    fn now(&self) -> Duration {
        Duration::from_millis(u64::from(self.steps) * 100)
    }

    fn now_s(&self) -> f64 {
        self.now().as_secs_f64()
    }

    fn serve(&mut self, load: Load) {
        let now_s = self.now_s();
        self.due += load.rate * STEP_S;
        while self.due >= 1.0 {
            self.due -= 1.0;
            self.arrived += 1;
            self.routed.push_back(Request {
                arrived_s: now_s,
                input: load.input,
                output: load.output,
                left: load.input,
            });
        }
        while let Some(request) = self.routed.pop_front() {
            if let Some(request) = self.give(PoolRole::Prefill, request) {
                self.routed.push_front(request);
                break;
            }
        }
        let computed: Vec<Request> = self.pods.iter_mut().flat_map(Pod::prefill).collect();
        for request in computed {
            let lost = self.give(PoolRole::Decode, request);
            assert!(lost.is_none(), "a decode replica always serves");
        }
        for pod in &mut self.pods {
            self.answered += pod.decode(now_s, &mut self.measured);
        }
    }

    /// To the replica with the fewest requests; returned if none serves.
    fn give(&mut self, role: PoolRole, request: Request) -> Option<Request> {
        let serving = |pod: &&mut Pod| pod.role == role && pod.state == ReplicaState::Serving;
        let pods = self.pods.iter_mut().filter(serving);
        let Some(pod) = pods.min_by_key(|pod| pod.waiting.len() + pod.running.len()) else {
            return Some(request);
        };
        pod.counters.requests += 1.0;
        pod.waiting.push_back(request);
        None
    }

    fn decide(&mut self, load: Load) {
        let now = self.now();
        let replicas = self.pods.iter().map(|pod| pod.observe(now)).collect();
        let observations = Observations {
            targets: self.targets,
            replicas,
            router_queue: Some(as_f64(self.routed.len())),
            rollout_unready: false,
            room_came: None,
        };
        let history = std::mem::take(&mut self.history);
        let (decision, history) = decide(&observations, history, &self.spec, now);
        self.history = history;
        let change = decision.change();
        if let Some(targets) = change {
            self.targets = targets;
            self.changes += 1;
            self.follow_targets();
        }
        let second = self.steps / STEPS_PER_S;
        if change.is_some() || (second.is_multiple_of(ROW_EVERY_S) && second > 0) {
            self.row(load, &decision);
        }
    }

    /// Nodes take pods, pods start, leavers that are empty go.
    fn follow_pods(&mut self) {
        let now = self.now();
        for pod in &mut self.pods {
            if pod.state == ReplicaState::Starting && now - pod.since >= START {
                pod.state = ReplicaState::Serving;
            }
        }
        let empty = |pod: &Pod| pod.waiting.is_empty() && pod.running.is_empty();
        self.pods
            .retain(|pod| pod.state != ReplicaState::Leaving || !empty(pod));
        for i in 0..self.pods.len() {
            let gpus = self.spec.gpus[self.pods[i].role];
            let fits = self.gpus_in_use() + gpus <= self.node_gpus;
            if self.pods[i].state == ReplicaState::Unschedulable && fits {
                self.pods[i].state = ReplicaState::Starting;
                self.pods[i].since = now;
            }
        }
        self.most_gpus = self.most_gpus.max(self.gpus_in_use());
    }

    fn gpus_in_use(&self) -> u32 {
        let placed = |pod: &&Pod| pod.state != ReplicaState::Unschedulable;
        let pods = self.pods.iter().filter(placed);
        pods.map(|pod| self.spec.gpus[pod.role]).sum()
    }

    /// Creates what lacks; of what is too many, what never ran goes first.
    fn follow_targets(&mut self) {
        for role in ROLES {
            let wanted = self.targets[role] as usize;
            let live = |pod: &&mut Pod| pod.role == role && pod.state != ReplicaState::Leaving;
            let mut pods: Vec<_> = self.pods.iter_mut().filter(live).collect();
            pods.sort_by_key(|pod| {
                let served = pod.state == ReplicaState::Serving;
                let in_flight = pod.waiting.len() + pod.running.len();
                (!served, !pod.slowed, in_flight, Reverse(pod.since))
            });
            let lacking = wanted.saturating_sub(pods.len());
            let unplaced = pods
                .iter()
                .filter(|pod| pod.state == ReplicaState::Unschedulable);
            let many = pods.len().saturating_sub(wanted);
            let waiting_first = unplaced.count().min(many);
            for pod in pods.iter_mut().rev().take(waiting_first) {
                pod.state = ReplicaState::Leaving;
            }
            let rest = pods.len() - waiting_first;
            for pod in pods.into_iter().take(rest).take(many - waiting_first) {
                pod.state = ReplicaState::Leaving;
            }
            for _ in 0..lacking {
                self.created += 1;
                self.pods.push(Pod::new(role, self.created, self.now()));
            }
        }
        self.follow_pods();
    }

    fn row(&mut self, load: Load, decision: &Decision) {
        let Measured { ttfts, itl } = std::mem::take(&mut self.measured);
        self.ttft_s = mean(&ttfts);
        self.itl_s = mean(&itl);
        let second = self.steps / STEPS_PER_S;
        let pool = |role| format!("{}/{}", self.serving(role), self.targets[role]);
        let _infallible = writeln!(
            self.table,
            "{:>4}:{:02} {:>6} {:>5}+{:<4} {:>7} {:>7} {:>6.1} s {:>5.0} ms   {:?}, {:?}",
            second / 60,
            second % 60,
            load.rate,
            load.input,
            load.output,
            pool(PoolRole::Prefill),
            pool(PoolRole::Decode),
            self.ttft_s,
            self.itl_s * 1000.0,
            decision.reason,
            decision.limited_by,
        );
    }
}

// === impl Pod ===

impl Pod {
    fn new(role: PoolRole, number: u32, now: Duration) -> Self {
        Self {
            uid: format!("{number:04}"),
            role,
            state: ReplicaState::Unschedulable,
            since: now,
            waiting: VecDeque::new(),
            running: Vec::new(),
            counters: Counters::default(),
            slowed: false,
        }
    }

    fn speed(&self) -> f64 {
        if self.slowed { 0.5 } else { 1.0 }
    }

    /// Computes prompts for a step; those that are done go to decode.
    fn prefill(&mut self) -> Vec<Request> {
        let mut done = Vec::new();
        if self.role != PoolRole::Prefill {
            return done;
        }
        let tokens_per_s = PREFILL_TOKENS_PER_S * self.speed();
        let mut can = tokens_per_s * STEP_S;
        while let Some(first) = self.waiting.front_mut() {
            let computed = first.left.min(can);
            first.left -= computed;
            can -= computed;
            self.counters.prefill_tokens += computed;
            self.counters.busy_s += computed / tokens_per_s;
            if first.left > 0.0 {
                break;
            }
            self.counters.prompts += 1.0;
            self.counters.prompt_tokens += first.input;
            let request = self.waiting.pop_front();
            done.extend(request.map(|request| Request {
                left: request.output,
                ..request
            }));
        }
        done
    }

    /// Produces tokens for a step; returns how many answers are complete.
    fn decode(&mut self, now_s: f64, measured: &mut Measured) -> u32 {
        if self.role != PoolRole::Decode {
            return 0;
        }
        while let Some(first) = self.waiting.front() {
            let at_last: f64 = self.running.iter().map(|r| r.input + r.output).sum();
            if at_last + first.input + first.output > CAPACITY_TOKENS {
                break;
            }
            measured.ttfts.push(now_s + STEP_S - first.arrived_s);
            self.running.extend(self.waiting.pop_front());
        }
        if self.running.is_empty() {
            return 0;
        }
        let running = as_f64(self.running.len());
        let itl_s = (0.008 + 0.000_2 * running + 4e-7 * self.kv_tokens()) / self.speed();
        measured.itl.push(itl_s);
        let mut tokens = 0.0;
        for request in &mut self.running {
            let produced = (STEP_S / itl_s).min(request.left);
            request.left -= produced;
            tokens += produced;
        }
        self.counters.answer_tokens += tokens;
        self.counters.intervals += tokens;
        self.counters.interval_s += tokens * itl_s;
        let before = self.running.len();
        self.running.retain(|request| request.left > 0.0);
        let done = before - self.running.len();
        self.counters.answers += as_f64(done);
        u32::try_from(done).unwrap()
    }

    fn kv_tokens(&self) -> f64 {
        let held = |request: &Request| request.input + request.output - request.left;
        self.running.iter().map(held).sum()
    }

    fn observe(&self, now: Duration) -> Replica {
        let queued: f64 = match self.role {
            PoolRole::Prefill => self.waiting.iter().map(|request| request.left).sum(),
            PoolRole::Decode => self.waiting.iter().map(|request| request.input).sum(),
        };
        // The first prompt is being computed; it does not wait.
        let begun = usize::from(self.role == PoolRole::Prefill);
        let since = |request: &Request| now.as_secs_f64() - request.arrived_s;
        let gauges = Gauges {
            running: as_f64(self.running.len()),
            queue_tokens: queued,
            queue_age_s: self.waiting.get(begun).map_or(0.0, since),
            used_tokens: self.kv_tokens(),
            reserved_tokens: 0.0,
            capacity_tokens: CAPACITY_TOKENS,
            slots: None,
        };
        let mut sample = Sample::default();
        (sample.at, sample.counters, sample.gauges) = (now, self.counters, gauges);
        sample.degraded = self.slowed;
        let answers = matches!(self.state, ReplicaState::Serving | ReplicaState::Leaving);
        Replica {
            uid: self.uid.clone(),
            role: self.role,
            revision: "r1".to_owned(),
            state: self.state,
            sample: answers.then_some(sample),
        }
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / as_f64(values.len().max(1))
}

fn as_f64(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap())
}
