//! Part `ops`: gpu-proof, whose checks become ours.

use crate::checks::{Check, Checks, Verdict};
use crate::program;
use crate::site::{Device, Site};
use anyhow::{Result, ensure};
use pd_e2e::binaries::binary;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(8 * 60);

pub(crate) async fn run(site: &Site, checks: &mut Checks) -> Result<()> {
    if site.device == Device::Cpu {
        checks.skipped("gpu-proof", "needs a GPU");
        return Ok(());
    }
    let output = program::run::<&str>(&binary("gpu-proof"), &[], LIMIT).await?;
    let text = String::from_utf8_lossy(&output.stdout);
    let found: Vec<Check> = text.lines().filter_map(read_check).collect();
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        !found.is_empty(),
        "gpu-proof made no check:\n{text}{errors}"
    );
    let failed = found.iter().any(|check| check.verdict == Verdict::Failed);
    found.into_iter().for_each(|check| checks.enter(check));
    ensure!(
        output.status.success() != failed,
        "gpu-proof ended with {}:\n{errors}",
        output.status
    );
    ensure!(!failed, "what gpu-proof said:\n{errors}");
    Ok(())
}

/// `VERDICT SECONDS s  NAME`, as gpu-proof prints it.
fn read_check(line: &str) -> Option<Check> {
    let mut words = line.split_whitespace();
    let verdict = match words.next()? {
        "ok" => Verdict::Ok,
        "FAILED" => Verdict::Failed,
        _ => return None,
    };
    let seconds = words.next()?.parse().ok()?;
    let name = words.nth(1)?;
    Some(Check {
        name: name.to_owned(),
        verdict,
        seconds,
        note: String::new(),
    })
}
