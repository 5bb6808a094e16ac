//! What is attacked: a router and its workers on a tiny model, each bounded in memory where the kernel allows that.

use anyhow::{Context, Result, bail, ensure};
use pd_e2e::attacks::usage::{MemoryLimit, Usage};
use pd_e2e::binaries;
use pd_e2e::fleet::{Fleet, FleetSpec, words};
use pd_e2e::load::Known;
use pd_e2e::process::Process;
use pd_e2e::prompts::{greedy, ids};
use rustix::process::Signal;
use std::path::PathBuf;
use std::time::Duration;

/// Of each process: 2 GiB.
const MEMORY_BYTES: u64 = 2 << 30;
/// A pool that every attack fits into.
const AGENT_FLAGS: &str = "--max-total-tokens 65536 --log-level warn";
const ROUTER_FLAGS: &str = "--log-level warn";
/// Tokens of a prompt and of an answer of the other clients.
const PROMPT_LEN: usize = 64;
const NEW_TOKENS: u32 = 64;

const END_LIMIT: Duration = Duration::from_secs(60);

pub(crate) struct Stand {
    pub(crate) fleet: Fleet,
    pub(crate) known: Known,
    // After the processes.
    _limits: Vec<MemoryLimit>,
}

// === impl Stand ===

impl Stand {
    pub(crate) async fn start(pairs: usize) -> Result<Self> {
        Self::start_with(pairs, None).await
    }

    /// Whose processes know each other by keys, if there are some.
    pub(crate) async fn start_with(pairs: usize, peer_keys: Option<PathBuf>) -> Result<Self> {
        let mut spec = FleetSpec::new(binaries::tiny_model("tiny-llama"));
        spec.peer_keys = peer_keys;
        (spec.prefill, spec.decode) = (pairs, pairs);
        spec.agent_args = words(AGENT_FLAGS);
        spec.router_args = words(ROUTER_FLAGS);
        let fleet = spec.start().await?;
        let limits = processes(&fleet).into_iter();
        let limits: Result<Vec<MemoryLimit>> = limits
            .map(|process| MemoryLimit::set(process, MEMORY_BYTES))
            .collect();
        let limits = limits.unwrap_or_else(|error| {
            println!("no memory cgroups, so that only what is measured bounds memory: {error:#}");
            Vec::new()
        });
        let request = greedy(&ids(1, PROMPT_LEN), NEW_TOKENS);
        let known = Known::learn(&fleet.client, &fleet.url("/generate"), request).await?;
        Ok(Self {
            fleet,
            known,
            _limits: limits,
        })
    }

    /// What each process holds, the workers first.
    pub(crate) fn usage(&self) -> Result<Vec<Usage>> {
        processes(&self.fleet).into_iter().map(Usage::of).collect()
    }

    pub(crate) fn names(&self) -> Vec<&str> {
        let processes = processes(&self.fleet).into_iter();
        let role = |process: &'_ Process| -> usize {
            process.name.find('@').unwrap_or(process.name.len())
        };
        processes
            .map(|process| &process.name[..role(process)])
            .collect()
    }

    /// Asks all to end, and waits for it: a drain must not wait for what attackers left.
    pub(crate) async fn end(mut self) -> Result<()> {
        let workers = self.fleet.workers.iter_mut();
        let workers = workers.map(|worker| &mut worker.process);
        for process in [&mut self.fleet.router].into_iter().chain(workers) {
            process.signal(Signal::TERM)?;
            let status = process.wait_exit(END_LIMIT).await?;
            ensure!(status.success(), "{} ended with {status}", process.name);
        }
        Ok(())
    }

    /// Whether all still run.
    pub(crate) fn check_alive(&mut self) -> Result<()> {
        for worker in &mut self.fleet.workers {
            worker.process.check_alive()?;
        }
        self.fleet.router.check_alive()?;
        if self.fleet.logs().contains("panicked") {
            bail!("a thread panicked\n{}", self.fleet.logs());
        }
        self.usage().map(drop).context("a process is gone")
    }
}

fn processes(fleet: &Fleet) -> Vec<&Process> {
    let workers = fleet.workers.iter().map(|worker| &worker.process);
    workers.chain([&fleet.router]).collect()
}
