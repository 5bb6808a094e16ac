//! `make soak`: a steady load, the attacks in turn, and what each process holds, minute after minute.

use crate::attackers;
use crate::probe::Probe;
use crate::stand::Stand;
use anyhow::{Result, bail, ensure};
use clap::Args;
use pd_e2e::attacks::usage::Usage;
use pd_e2e::attacks::{Attack, Extent, Target};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Memory may grow by this much after the warm-up.
const GROWTH_BYTES_MAX: u64 = 24 << 20;
const MINUTE: Duration = Duration::from_secs(60);
/// After this, everything that an attack opened is closed: an idle connection is kept for less.
const SETTLED_WITHIN: Duration = Duration::from_secs(100);
/// Rest is measured for so long.
const RESTS_FOR: Duration = Duration::from_secs(60);
const REST_INTERVAL: Duration = Duration::from_secs(4);
/// No attack of this size takes longer.
const ATTACK_LIMIT: Duration = Duration::from_secs(300);

#[derive(Debug, Args)]
pub(crate) struct SoakArgs {
    #[arg(long, default_value_t = 3600)]
    seconds: u64,
    /// Of them, the first ones, in which memory may grow.
    #[arg(long, default_value_t = 600)]
    warm_up_seconds: u64,
}

fn extent(attack: Attack) -> Extent {
    let (count, secs) = match attack {
        Attack::HalfHeads | Attack::IdleConnections => (1000, 5),
        Attack::LongPrompts => (2, 0),
        Attack::UnfinishedBodies => (50, 5),
        Attack::UnreadStreams => (8, 5),
        Attack::AbandonedStreams => (50, 0),
        Attack::HeaderFloods
        | Attack::UnfinishedGreetings
        | Attack::UnfinishedMessages
        | Attack::Garbage
        | Attack::StolenRegistrations
        | Attack::StrangersAborts => (300, 2),
    };
    Extent {
        count,
        hold: Duration::from_secs(secs),
    }
}

pub(crate) async fn run(args: SoakArgs) -> Result<()> {
    ensure!(
        args.warm_up_seconds < args.seconds,
        "nothing is left after the warm-up"
    );
    let mut stand = Stand::start(2).await?;
    let url = stand.fleet.url("/generate");
    let first = settled(&stand, &url).await?;
    println!(
        "minute: memory in MiB, descriptors, threads of {}",
        stand.names().join(", ")
    );
    let began = Instant::now();
    let [end, warm_up] = [args.seconds, args.warm_up_seconds].map(Duration::from_secs);
    let probe = Probe::start(&url, &stand.known);
    let mut samples: Vec<(Duration, Vec<Usage>)> = Vec::new();
    let target = Target::of(&stand.fleet);
    let mut next = Duration::ZERO;
    let mut tries = 0;
    for attack in Attack::ALL.into_iter().cycle() {
        if began.elapsed() >= end {
            break;
        }
        let ran = attackers::attack(attack, target, extent(attack));
        match timeout(ATTACK_LIMIT, ran).await {
            Ok(outcomes) => tries += outcomes?.total(),
            Err(_) => bail!("{} hangs", attack.name()),
        }
        stand.check_alive()?;
        let (at, usage) = (began.elapsed(), stand.usage()?);
        if at >= next {
            println!("{}", line(at, &usage));
            next = at + MINUTE;
        }
        samples.push((at, usage));
    }
    let answers = probe.stop().await;
    println!(
        "{tries} tries, {} answers of others, {} failed",
        answers.number(),
        answers.failures.len()
    );
    ensure!(
        answers.failures.is_empty(),
        "answers failed: {:?}",
        answers.failures.first()
    );
    let last = settled(&stand, &url).await?;
    println!("{}", line(began.elapsed(), &last));
    check_memory(&samples, warm_up, &stand.names())?;
    for ((name, first), last) in stand.names().iter().zip(&first).zip(&last) {
        ensure!(
            (first.descriptors, first.threads) == (last.descriptors, last.threads),
            "{name} had {first:?} and has {last:?}"
        );
    }
    stand.end().await
}

/// What each holds at rest, while two clients ask: the fewest descriptors and threads of a minute, since a request may
/// need one more for a moment, and the memory at their end.
async fn settled(stand: &Stand, url: &str) -> Result<Vec<Usage>> {
    let began = Instant::now();
    let mut least: Vec<Usage> = Vec::new();
    while began.elapsed() < SETTLED_WITHIN + RESTS_FOR {
        let probe = Probe::start(url, &stand.known);
        sleep(REST_INTERVAL).await;
        let mut now = stand.usage()?;
        probe.stop().await;
        if began.elapsed() < SETTLED_WITHIN {
            continue;
        }
        for (now, least) in now.iter_mut().zip(&least) {
            now.descriptors = now.descriptors.min(least.descriptors);
            now.threads = now.threads.min(least.threads);
        }
        least = now;
    }
    Ok(least)
}

fn line(at: Duration, usage: &[Usage]) -> String {
    let each =
        |number: &dyn Fn(&Usage) -> String| usage.iter().map(number).collect::<Vec<_>>().join("/");
    format!(
        "{:>4}: {} | {} | {}",
        at.as_secs() / 60,
        each(&|usage| (usage.anonymous_bytes >> 20).to_string()),
        each(&|usage| usage.descriptors.to_string()),
        each(&|usage| usage.threads.to_string()),
    )
}

/// From the first half after the warm-up to the second, no process grows by more than the bound. What a process holds
/// right after an attack with large bodies is not what it keeps, so medians are compared.
fn check_memory(
    samples: &[(Duration, Vec<Usage>)],
    warm_up: Duration,
    names: &[&str],
) -> Result<()> {
    let warm: Vec<&Vec<Usage>> = samples
        .iter()
        .filter(|(at, _)| *at >= warm_up)
        .map(|(_, usage)| usage)
        .collect();
    let (first, second) = warm.split_at(warm.len() / 2);
    ensure!(
        !first.is_empty(),
        "too little was measured after the warm-up"
    );
    for (nr, name) in names.iter().enumerate() {
        let [before, after] = [first, second].map(|half| median(half, nr));
        let grown = after.saturating_sub(before);
        println!("{name}: {} MiB, then {} MiB", before >> 20, after >> 20);
        ensure!(
            grown <= GROWTH_BYTES_MAX,
            "{name} grew by {} MiB",
            grown >> 20
        );
    }
    Ok(())
}

fn median(samples: &[&Vec<Usage>], process: usize) -> u64 {
    let mut bytes: Vec<u64> = samples
        .iter()
        .map(|usage| usage[process].anonymous_bytes)
        .collect();
    bytes.sort_unstable();
    bytes[bytes.len() / 2]
}
