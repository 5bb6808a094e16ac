//! What an agent under load says of itself, by simple laws: prefill computes so many tokens a second;
//! decode's time between tokens is a line in the requests that run.

use pd_protocol::Role;
use std::collections::BTreeMap;

/// What a prefill worker computes.
const PREFILL_TOKENS_PER_S: f64 = 10_000.0;
/// Time between tokens of a request that is alone, and what each other one adds.
const INTERVAL_S: f64 = 0.010;
const SHARED_S: f64 = 0.000_5;
/// Of the KV pool.
const CAPACITY_TOKENS: f64 = 120_000.0;
const KV_BYTES_PER_TOKEN: f64 = 100_000.0;
const LINK_BYTES_PER_S: f64 = 4e10;
/// Longest stretch of time over which the laws are taken for linear.
const STRETCH_S: f64 = 0.05;

/// What users send.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Requests per second.
    pub rate: f64,
    /// Tokens of a prompt.
    pub input: f64,
    /// Tokens of an answer.
    pub output: f64,
}

/// An agent's `/metrics`, cut where the figures stand.
pub(super) struct Template(Vec<Piece>);

enum Piece {
    Text(String),
    Figure { name: String, otherwise: String },
}

#[derive(Debug)]
pub(super) struct Agent {
    role: Role,
    /// Those that wait: for a step on prefill, for memory on decode.
    queued: f64,
    running: f64,
    /// Of the last load that was not nothing.
    shape: Load,
    counters: BTreeMap<&'static str, f64>,
}

// === impl Load ===

impl Load {
    pub(super) fn shared_by(self, agents: usize) -> Self {
        let agents = u32::try_from(agents.max(1)).unwrap_or(u32::MAX);
        Self {
            rate: self.rate / f64::from(agents),
            ..self
        }
    }

    /// What so many prefill workers let through.
    pub(super) fn through(self, prefill: usize) -> Self {
        let prefill = f64::from(u32::try_from(prefill).unwrap_or(u32::MAX));
        let most = prefill * PREFILL_TOKENS_PER_S / self.input.max(1.0);
        Self {
            rate: self.rate.min(most),
            ..self
        }
    }
}

// === impl Template ===

impl Template {
    pub(super) fn new(text: &str) -> Self {
        let pieces = text.lines().map(|line| match line.split_once(' ') {
            Some((name, value)) if !line.starts_with('#') && !name.contains('{') => Piece::Figure {
                name: name.to_owned(),
                otherwise: value.to_owned(),
            },
            Some(_) | None => Piece::Text(format!("{line}\n")),
        });
        Self(pieces.collect())
    }

    fn render(&self, figures: &BTreeMap<&str, f64>) -> String {
        let lines = self.0.iter().map(|piece| match piece {
            Piece::Text(line) => line.clone(),
            Piece::Figure { name, otherwise } => match figures.get(name.as_str()) {
                Some(value) => format!("{name} {value}\n"),
                None => format!("{name} {otherwise}\n"),
            },
        });
        lines.collect()
    }
}

// === impl Agent ===

impl Agent {
    pub(super) fn new(role: Role) -> Self {
        Self {
            role,
            queued: 0.0,
            running: 0.0,
            shape: Load::default(),
            counters: BTreeMap::new(),
        }
    }

    /// Lives on for some seconds in which `load` comes to it.
    pub(super) fn live(&mut self, load: Load, mut seconds: f64) {
        if load.rate > 0.0 {
            self.shape = load;
        }
        while seconds > 0.0 {
            let stretch = seconds.min(STRETCH_S);
            let arrived = load.rate * stretch;
            self.queued += arrived;
            self.count("pdserve_num_requests_total", arrived);
            match self.role {
                Role::Prefill => self.prefill(stretch),
                Role::Decode | Role::Unified => self.decode(stretch),
            }
            seconds -= stretch;
        }
    }

    fn prefill(&mut self, seconds: f64) {
        let Load { input, .. } = self.shape;
        if input <= 0.0 {
            return;
        }
        let done = self.queued.min(PREFILL_TOKENS_PER_S * seconds / input);
        let tokens = done * input;
        self.queued -= done;
        self.count("pdserve_prompt_tokens_total", tokens);
        self.count("pdserve_prefill_tokens_total", tokens);
        self.count(
            "pdserve_step_time_seconds_sum",
            tokens / PREFILL_TOKENS_PER_S,
        );
        self.prompts(done);
        self.count("pdserve_e2e_request_latency_seconds_count", done);
    }

    fn decode(&mut self, seconds: f64) {
        let Load { input, output, .. } = self.shape;
        if output <= 0.0 {
            return;
        }
        let room = CAPACITY_TOKENS / (input + output / 2.0) - self.running;
        let taken = self.queued.min(room.max(0.0));
        self.queued -= taken;
        self.running += taken;
        self.prompts(taken);
        let interval_s = INTERVAL_S + SHARED_S * self.running;
        let tokens = self.running * seconds / interval_s;
        let done = (tokens / output).min(self.running);
        self.running -= done;
        self.count("pdserve_generation_tokens_total", tokens);
        self.count("pdserve_inter_token_latency_seconds_count", tokens);
        self.count(
            "pdserve_inter_token_latency_seconds_sum",
            tokens * interval_s,
        );
        self.count(
            "pdserve_step_time_seconds_sum",
            seconds * self.running.min(1.0),
        );
        self.count("pdserve_e2e_request_latency_seconds_count", done);
    }

    /// KV of so many prompts went over the link.
    fn prompts(&mut self, prompts: f64) {
        let bytes = prompts * self.shape.input * KV_BYTES_PER_TOKEN;
        self.count("pdserve_time_to_first_token_seconds_count", prompts);
        self.count("pdserve_kv_transfer_bytes_total", bytes);
        self.count(
            "pdserve_kv_transfer_seconds_total",
            bytes / LINK_BYTES_PER_S,
        );
    }

    fn count(&mut self, name: &'static str, by: f64) {
        *self.counters.entry(name).or_default() += by;
    }

    /// Its `/metrics`.
    pub(super) fn text(&self, template: &Template) -> String {
        let Load { input, output, .. } = self.shape;
        let queued = self.queued * input;
        let (used, age_s) = match self.role {
            Role::Prefill => (queued, queued / PREFILL_TOKENS_PER_S),
            Role::Decode | Role::Unified => (self.running * (input + output / 2.0), 0.0),
        };
        let mut figures = self.counters.clone();
        figures.extend([
            ("pdserve_num_running_reqs", self.running),
            ("pdserve_num_queue_tokens", queued),
            ("pdserve_queue_oldest_age_seconds", age_s),
            ("pdserve_num_used_tokens", used.min(CAPACITY_TOKENS)),
            ("pdserve_prealloc_tokens", 0.0),
            ("pdserve_max_total_num_tokens", CAPACITY_TOKENS),
        ]);
        template.render(&figures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str, name: &str) -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let value = line.and_then(|rest| rest.trim().parse().ok());
        value.unwrap_or_else(|| panic!("no {name} in {text}"))
    }

    #[test]
    fn an_agent_beyond_its_speed_queues_and_one_within_it_does_not() {
        let template = Template::new(
            "# HELP pdserve_num_queue_tokens x\npdserve_num_queue_tokens 0\n\
             pdserve_prefill_tokens_total 0\npdserve_other{a=\"b\"} 3\n",
        );
        let load = Load {
            rate: 12.0,
            input: 1000.0,
            output: 10.0,
        };
        let mut agent = Agent::new(Role::Prefill);
        agent.live(load, 10.0);
        let text = agent.text(&template);
        let near = |name: &str, expected: f64| {
            let value = value(&text, name);
            assert!((value - expected).abs() < 1.0, "{name} {value}");
        };
        near("pdserve_num_queue_tokens", 20_000.0);
        near("pdserve_prefill_tokens_total", 100_000.0);
        assert!(text.contains("pdserve_other{a=\"b\"} 3\n"), "{text}");
        agent.live(load.shared_by(2), 10.0);
        assert!(agent.queued < 1e-6, "{}", agent.queued);
    }
}
