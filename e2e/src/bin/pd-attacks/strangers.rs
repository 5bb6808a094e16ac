//! `make strangers`: frames of those without a key at every port of workers that have one, under a load.

use crate::attackers;
use crate::probe::Probe;
use crate::stand::Stand;
use anyhow::{Context, Result, ensure};
use clap::Args;
use pd_e2e::attacks::{Extent, Target, keyless_frames};
use pd_e2e::metrics::Metrics;
use std::time::Duration;
use tokio::time::{Instant, sleep};

#[derive(Debug, Args)]
pub(crate) struct StrangersArgs {
    #[arg(long, default_value_t = 1_000_000)]
    frames: usize,
    /// How long the load is measured before.
    #[arg(long, default_value_t = 15)]
    before_secs: u64,
}

const KEY: &str = "a-key-that-no-stranger-has-192-bits\n";
/// Connections that are not ended by then are counted as open.
const HOLD: Duration = Duration::from_secs(20);

pub(crate) async fn run(args: StrangersArgs) -> Result<()> {
    let dir = tempfile::tempdir().context("no folder for a key")?;
    let keys = dir.path().join("keys");
    std::fs::write(&keys, KEY)?;
    let mut stand = Stand::start_with(1, Some(keys)).await?;
    let url = stand.fleet.url("/generate");
    let probe = Probe::start(&url, &stand.known);
    sleep(Duration::from_secs(args.before_secs)).await;
    let before = probe.stop().await;

    let probe = Probe::start(&url, &stand.known);
    let (target, began) = (Target::of(&stand.fleet), Instant::now());
    let extent = Extent {
        count: args.frames,
        hold: HOLD,
    };
    let outcomes = attackers::run(async move { keyless_frames(&target, extent).await }).await?;
    let took = began.elapsed();
    let during = probe.stop().await;
    stand.check_alive()?;
    let metrics = Metrics::scrape(&stand.fleet.client, &stand.fleet.url("")).await?;
    let serving = metrics.sum("pd_router_worker_serving", &[]);
    let retries = metrics.sum("pd_router_retries_total", &[]);
    let millis = |at| [&before, &during].map(|answers| answers.quantile(at).as_secs_f64() * 1e3);
    let ([p50, p50_during], [p99, p99_during]) = (millis(500), millis(990));
    println!(
        "{} frames over {} connections in {:.0} s: {outcomes}\n    load: {} answered, {} failed; p50/p99 \
         {p50:.1}/{p99:.1} ms before, {p50_during:.1}/{p99_during:.1} ms during\n    {serving} workers serve, {retries} \
         retries",
        args.frames,
        outcomes.total(),
        took.as_secs_f64(),
        during.number(),
        during.failures.len(),
    );
    let first = during.failures.first();
    ensure!(first.is_none(), "the load failed: {first:?}");
    ensure!(serving == 2.0 && retries == 0.0, "strangers had an effect");
    stand.end().await
}
