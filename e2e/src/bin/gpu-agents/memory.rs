//! `Footprint`: what a fleet's processes and their device hold at one moment.

use crate::program;
use anyhow::{Context, Result, ensure};
use pd_e2e::fleet::{Fleet, eventually};
use pd_e2e::metrics::Metrics;
use std::path::Path;
use std::time::Duration;

const MIB: u64 = 1 << 20;
/// What a process may grow by: its allocator keeps what the peak took.
const RESIDENT_GROWTH_MIB: u64 = 48;
/// What the device may: graphs of steps that had not come before.
const DEVICE_GROWTH_MIB: u64 = 64;
/// NVML's figure, in MiB, under DCGM exporter's name.
const DEVICE_USED: &str = "DCGM_FI_DEV_FB_USED";
const SETTLED_WITHIN: Duration = Duration::from_secs(5);
const NVIDIA_SMI_LIMIT: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(crate) struct Footprint {
    resident_mib: Vec<(String, u64)>,
    /// Absent where no source reports it.
    device_mib: Option<u64>,
}

// === impl Footprint ===

impl Footprint {
    /// # Errors
    /// When a process is gone.
    pub(crate) async fn of(fleet: &Fleet) -> Result<Self> {
        let processes = fleet.workers.iter().map(|worker| &worker.process);
        let resident_mib = processes.chain([&fleet.router]).map(|process| {
            let mib = process.resident_bytes()? / MIB;
            Ok((process.name.clone(), mib))
        });
        Ok(Self {
            resident_mib: resident_mib.collect::<Result<_>>()?,
            device_mib: device_mib(fleet).await?,
        })
    }

    /// Once the device's memory is within bounds, or has had time to be: what NVML says is a second old.
    ///
    /// # Errors
    /// When a process is gone.
    pub(crate) async fn settled(fleet: &Fleet, before: &Self) -> Result<Self> {
        let within = eventually(SETTLED_WITHIN, async || {
            Self::of(fleet).await?.device_since(before)?;
            Ok(())
        });
        // What lies beyond them in the end shows in what is read now.
        let _ = within.await;
        Self::of(fleet).await
    }

    /// How the processes' memory went.
    ///
    /// # Errors
    /// When one has grown beyond the bound.
    pub(crate) fn resident_since(&self, before: &Self) -> Result<String> {
        let mut said = Vec::new();
        for ((name, now), (_, then)) in self.resident_mib.iter().zip(&before.resident_mib) {
            let grown = now.saturating_sub(*then);
            ensure!(
                grown <= RESIDENT_GROWTH_MIB,
                "{name} grew from {then} to {now} MiB; the bound is {RESIDENT_GROWTH_MIB}"
            );
            said.push(format!("{name} {then} to {now}"));
        }
        Ok(format!(
            "MiB: {}; bound {RESIDENT_GROWTH_MIB}",
            said.join(", ")
        ))
    }

    /// How the device's memory changed; nothing where no source reports it.
    ///
    /// # Errors
    /// When it has grown beyond the bound.
    pub(crate) fn device_since(&self, before: &Self) -> Result<Option<String>> {
        let (Some(now), Some(then)) = (self.device_mib, before.device_mib) else {
            return Ok(None);
        };
        ensure!(
            now.saturating_sub(then) <= DEVICE_GROWTH_MIB,
            "the device's memory grew from {then} to {now} MiB; the bound is {DEVICE_GROWTH_MIB}"
        );
        Ok(Some(format!(
            "{then} to {now} MiB; bound {DEVICE_GROWTH_MIB}"
        )))
    }
}

/// As the agents report it, else as nvidia-smi does.
async fn device_mib(fleet: &Fleet) -> Result<Option<u64>> {
    for worker in &fleet.workers {
        let metrics = Metrics::scrape(&fleet.client, &worker.url()).await?;
        if metrics.has(DEVICE_USED) {
            return Ok(Some(whole(metrics.sum(DEVICE_USED, &[]))));
        }
    }
    let args = ["--query-gpu=memory.used", "--format=csv,noheader,nounits"];
    let Ok(output) = program::run(Path::new("nvidia-smi"), &args, NVIDIA_SMI_LIMIT).await else {
        return Ok(None);
    };
    let text = String::from_utf8(output.stdout)?;
    let used: Result<u64> = text
        .lines()
        .map(|line| Ok(line.trim().parse::<u64>()?))
        .sum();
    used.map(Some)
        .with_context(|| format!("nvidia-smi said {text}"))
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a gauge of whole MiB"
)]
fn whole(mib: f64) -> u64 {
    mib as u64
}

#[cfg(test)]
mod tests;
