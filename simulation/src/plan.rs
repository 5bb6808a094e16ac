//! What a seed decides: the deployment's size and flags, how good its network is, who asks what and when, what fails.

use crate::client::Ask;
use crate::engine::EngineShape;
use crate::faults::{Failing, Fault, Kind};
use crate::log::Log;
use crate::network::{LinkQuality, Links};
use crate::reference::{self, Known};
use crate::worker::StandIn;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::ops::Range;
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// Workers are engines with KV transfer; stand-ins without.
    pub(crate) engines: Option<EngineShape>,
    pub(crate) prefills: usize,
    pub(crate) decodes: usize,
    pub(crate) router_flags: Vec<String>,
    pub(crate) queue_size: usize,
    /// `None`: by what the workers say that they run, and none while there are none.
    pub(crate) in_flight_max: Option<usize>,
    /// Of the router's clients.
    pub(crate) connections_max: u32,
    /// How long a router that is asked to end still takes requests.
    shutdown_delay: Duration,
    pub(crate) request_timeout: Duration,
    pub(crate) probes: Probes,
    pub(crate) asks: Vec<Ask>,
    /// Asked one after the other when everything is well again.
    pub(crate) late_asks: Vec<Ask>,
    pub(crate) faults: Vec<Fault>,
    pub(crate) stand_in: StandIn,
    pub(crate) log: Log,
    /// How often a stranger tries.
    pub(crate) strange: u32,
    latency: Duration,
    jitter: Duration,
    loss: f64,
    bytes_per_sec: u32,
    piece_bytes_max: usize,
    short_share: f64,
}

/// How the router asks its workers how they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probes {
    interval: Duration,
    timeout: Duration,
}

/// Requests and faults begin within this.
pub(crate) const ACTIVE: Duration = Duration::from_secs(20);
/// Tries of a stranger.
const STRANGE: [u32; 4] = [0, 0, 0, 60];
/// Requests of one seed, at most.
const ASKS_MAX: usize = 40;
/// Share of seeds with engines.
const ENGINES: f64 = 0.5;
const FAULTS_MAX: usize = 6;
/// Share of clients that give up.
const LEAVING: [f64; 3] = [0.1, 0.1, 0.6];
/// Requests at the end for each pair that they may reach.
const LATE_ASKS: usize = 2;
const PROMPT_SHORT: usize = 60;
/// Until a request has arrived.
const WAY_THERE: Duration = Duration::from_secs(3);

/// Probes that a ready worker misses before it is lost, and the pause between them. Source: the router's defaults.
const PROBES_MISSED: u32 = 3;
const SUSPECT_INTERVAL: Duration = Duration::from_millis(250);
/// What a bad path adds to a probe or its refusal.
const PROBE_SLACK: Duration = Duration::from_secs(5);

// === impl Probes ===

impl Probes {
    /// Within this the router knows that a pool is lost.
    pub(crate) fn lost_within(&self) -> Duration {
        // A probe that was under way may succeed; it asks twice.
        let one = self.timeout * 2 + SUSPECT_INTERVAL;
        self.interval + self.timeout * 2 + one * PROBES_MISSED + PROBE_SLACK
    }
}

// === impl Plan ===

impl Plan {
    pub(crate) fn draw(seed: u64) -> Self {
        let rng = &mut StdRng::seed_from_u64(seed);
        let mut plan = Self::draw_any(seed, rng);
        if plan.waits_for_decode() && rng.random_bool(0.5) {
            plan.faults = vec![Fault::frozen_decode(rng)];
        }
        plan
    }

    /// Whether nothing but its peers' patience ends what is on its way to a decode that falls silent: rare, like a silence
    /// that lasts longer than that.
    fn waits_for_decode(&self) -> bool {
        let waits = self.engines.is_some_and(EngineShape::is_patient);
        waits && self.decodes == 1 && self.request_timeout > Fault::LONG_SILENCE / 2
    }

    fn draw_any(seed: u64, rng: &mut StdRng) -> Self {
        let engines = rng.random_bool(ENGINES).then(|| EngineShape::draw(rng));
        let (prefills, decodes) = (rng.random_range(1..=3), rng.random_range(1..=3));
        let queue_size = *pick(rng, &[1, 4, 100, 100]);
        let in_flight_max = *pick(rng, &[Some(1), Some(3), Some(64), None, None]);
        let connections_max = *pick(rng, &[16_384, 16_384, 8]);
        let shutdown_delay = Duration::from_secs(*pick(rng, &[0, 2, 5]));
        let request_timeout = Duration::from_secs(*pick(rng, &[8, 20, 60]));
        let probes = Probes {
            interval: Duration::from_secs(*pick(rng, &[1, 5])),
            timeout: Duration::from_secs(*pick(rng, &[1, 5])),
        };
        let prompts = match engines {
            Some(shape) => reference::computed(rng, shape),
            None => reference::counted(rng),
        };
        let asks_len = rng.random_range(1..=ASKS_MAX);
        let within = Duration::from_secs(*pick(rng, &[1, 5, 20, 20]));
        let leaving = *pick(rng, &LEAVING);
        let asks = (0..asks_len).map(|nr| Ask::draw(nr, rng, within, &prompts, leaving));
        let asks = asks.collect();
        let kinds = Fault::kinds(rng);
        let faults = (0..rng.random_range(0..=FAULTS_MAX))
            .map(|_| Fault::draw(rng, (prefills, decodes), &kinds));
        let mut faults: Vec<Fault> = faults.collect();
        faults.sort_by_key(|fault| fault.at);
        let bytes_per_sec = *pick(rng, &[1 << 30, 1 << 22, 1 << 18, 1 << 15]);
        let least_bytes_per_sec = engines.map_or(0, EngineShape::bytes_per_sec_min);
        let late_asks_len = prefills.max(decodes) * LATE_ASKS;
        let late_asks = late_asks(rng, prompts, asks_len..asks_len + late_asks_len);
        Self {
            seed,
            engines,
            prefills,
            decodes,
            connections_max,
            router_flags: router_flags(
                rng,
                connections_max,
                (queue_size, in_flight_max),
                request_timeout,
                shutdown_delay,
                probes,
            ),
            queue_size,
            in_flight_max,
            shutdown_delay,
            request_timeout,
            probes,
            asks,
            late_asks,
            faults,
            stand_in: StandIn {
                token_time: Duration::from_millis(*pick(rng, &[2, 20, 100])),
                running_max: *pick(rng, &[1, 16]),
            },
            log: Log::draw(rng),
            strange: *pick(rng, &STRANGE),
            latency: Duration::from_micros(*pick(rng, &[30, 100, 500, 5_000, 30_000])),
            jitter: Duration::from_micros(*pick(rng, &[0, 50, 500, 20_000])),
            loss: *pick(rng, &[0.0, 0.0, 0.001, 0.02]),
            bytes_per_sec: bytes_per_sec.max(least_bytes_per_sec),
            piece_bytes_max: *pick(rng, &[64 << 10, 64 << 10, 1460, 100]),
            short_share: *pick(rng, &[0.0, 0.05, 0.5]),
        }
    }

    pub(crate) fn links(&self) -> Links {
        let usual = LinkQuality {
            latency: self.latency,
            jitter: self.jitter,
            loss: self.loss,
            bytes_per_sec: self.bytes_per_sec,
        };
        Links::new(usual, self.piece_bytes_max, self.short_share)
    }

    /// Whether a router that is asked to end may not hear of this request any more.
    pub(crate) fn misses_router(&self, ask: &Ask) -> bool {
        self.faults.iter().any(|fault| {
            fault.kind == Kind::Terminate(Failing::Router)
                && ask.at + WAY_THERE > fault.at + self.shutdown_delay
        })
    }

    /// Whether something happens to the router, or to the path between it and its clients.
    pub(crate) fn hurts_router(&self) -> bool {
        self.faults.iter().any(|fault| fault.hurts(Failing::Router))
    }
}

pub(crate) fn pick<'a, T>(rng: &mut StdRng, of: &'a [T]) -> &'a T {
    &of[rng.random_range(0..of.len())]
}

fn late_asks(rng: &mut StdRng, prompts: Vec<Known>, nrs: Range<usize>) -> Vec<Ask> {
    // What takes a stand-in longer than the router's limit is left out.
    let short: Vec<Known> = prompts
        .into_iter()
        .filter(|(prompt, _)| prompt.len() <= PROMPT_SHORT)
        .collect();
    nrs.map(|nr| Ask::draw(nr, rng, ACTIVE, &short, 0.0).at_ease())
        .collect()
}

fn router_flags(
    rng: &mut StdRng,
    connections_max: u32,
    (queue_size, in_flight_max): (usize, Option<usize>),
    request_timeout: Duration,
    shutdown_delay: Duration,
    probes: Probes,
) -> Vec<String> {
    let policies = ["least_loaded", "random", "round_robin", "power_of_two"];
    let flags = [
        ("--policy", (*pick(rng, &policies)).to_owned()),
        ("--queue-size", queue_size.to_string()),
        (
            "--max-concurrent-requests",
            in_flight_max.map_or_else(|| "auto".to_owned(), |max| max.to_string()),
        ),
        (
            "--shutdown-delay-secs",
            shutdown_delay.as_secs().to_string(),
        ),
        ("--max-connections", connections_max.to_string()),
        (
            "--request-timeout-secs",
            request_timeout.as_secs().to_string(),
        ),
        ("--queue-timeout-secs", pick(rng, &[2, 10, 60]).to_string()),
        (
            "--no-worker-timeout-secs",
            pick(rng, &[0, 3, 10]).to_string(),
        ),
        (
            "--health-check-interval-secs",
            probes.interval.as_secs().to_string(),
        ),
        (
            "--health-check-timeout-secs",
            probes.timeout.as_secs().to_string(),
        ),
        ("--retry-max-retries", pick(rng, &[0, 2, 5]).to_string()),
        ("--cb-failure-threshold", pick(rng, &[2, 10]).to_string()),
        (
            "--cb-timeout-duration-secs",
            pick(rng, &[2, 10]).to_string(),
        ),
    ];
    let flags = flags.into_iter();
    flags
        .flat_map(|(flag, value)| [flag.to_owned(), value])
        .collect()
}
