//! `Part`: what can be asked for by name.

use crate::checks::Checks;
use crate::site::{Device, Site};
use crate::{deterministic, golden, graphs, load, ops, pair, sanitizer};
use anyhow::Result;
use clap::ValueEnum;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Every op beside the CPU backend's (gpu-proof)
    Ops,
    /// Answers beside those of an agent on CPUs
    Golden,
    /// Prefill and decode agents on one device beside one agent
    Pair,
    /// Bits that depend on neither batch-mates nor chunks
    Deterministic,
    /// Bits with and without graphs and overlap
    Graphs,
    /// A mixed load that must leave nothing behind
    Load,
    /// Kernels and an agent under compute-sanitizer, where it is installed
    Sanitizer,
}

// === impl Part ===

impl Part {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ops => "ops",
            Self::Golden => "golden",
            Self::Pair => "pair",
            Self::Deterministic => "deterministic",
            Self::Graphs => "graphs",
            Self::Load => "load",
            Self::Sanitizer => "sanitizer",
        }
    }

    /// What a result must share with a run to stand for it.
    pub(crate) fn ran_as(self, device: Device, load_seconds: u64) -> String {
        match self {
            Self::Load => format!("{} {load_seconds} s", device.flag()),
            Self::Ops
            | Self::Golden
            | Self::Pair
            | Self::Deterministic
            | Self::Graphs
            | Self::Sanitizer => device.flag().to_owned(),
        }
    }

    /// # Errors
    /// What kept checks from being made; a check that fails is no error.
    pub(crate) async fn run(self, site: &Site, checks: &mut Checks, seconds: u64) -> Result<()> {
        match self {
            Self::Ops => ops::run(site, checks).await,
            Self::Golden => golden::run(site, checks).await,
            Self::Pair => pair::run(site, checks).await,
            Self::Deterministic => deterministic::run(site, checks).await,
            Self::Graphs => graphs::run(site, checks).await,
            Self::Load => load::run(site, checks, seconds).await,
            Self::Sanitizer => sanitizer::run(site, checks).await,
        }
    }
}
