//! `make attacks`: each attack against a fleet of its own, and the bounds that it must not break.

use crate::attackers;
use crate::probe::{Answers, Probe};
use crate::stand::Stand;
use anyhow::{Result, ensure};
use clap::Args;
use pd_e2e::attacks::{Attack, Extent, Target};
use pd_e2e::quiet::quiet;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Latency of others during an attack, at most, as a multiple of what it was before.
const SLOWER_MAX: f64 = 2.0;
/// What is left of an attack's memory in a process a minute later.
const LEFT_BYTES_MAX: i64 = 24 << 20;
/// Others are measured during an attack for at least so long; a shorter one is repeated.
const DURING_MIN: Duration = Duration::from_secs(10);
const LEFT_AFTER: Duration = Duration::from_secs(60);

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Attacks whose names contain one of these words; all if none is given.
    only: Vec<String>,
    /// Tries of each attack, in percent of its full count.
    #[arg(long, default_value_t = 100)]
    percent: usize,
    /// How long others are measured before an attack.
    #[arg(long, default_value_t = 15)]
    before_secs: u64,
}

/// What one attack came to.
struct Row {
    outcomes: String,
    count: usize,
    took: Duration,
    before: Answers,
    during: Answers,
    /// Of each process: at the start, the peak, and a minute later, in bytes.
    memory: Vec<[u64; 3]>,
    names: String,
}

/// The tries of each attack, and how long its connections stay.
fn extent(attack: Attack, percent: usize) -> Extent {
    let (count, secs) = match attack {
        Attack::HalfHeads | Attack::IdleConnections => (20_000, 30),
        Attack::HeaderFloods => (2000, 10),
        Attack::LongPrompts => (40, 0),
        Attack::UnfinishedBodies => (400, 40),
        Attack::UnreadStreams => (64, 75),
        Attack::AbandonedStreams => (5000, 0),
        Attack::UnfinishedGreetings => (5000, 15),
        Attack::UnfinishedMessages => (2000, 15),
        Attack::Garbage => (5000, 5),
        Attack::StolenRegistrations => (5000, 0),
        Attack::StrangersAborts => (5000, 5),
    };
    Extent {
        count: (count * percent / 100).max(1),
        hold: Duration::from_secs(secs),
    }
}

pub(crate) async fn run(args: BenchArgs) -> Result<()> {
    let is_wanted = |attack: &Attack| {
        let wanted = |word: &String| attack.name().contains(word.as_str());
        args.only.is_empty() || args.only.iter().any(wanted)
    };
    let mut broken = Vec::new();
    for attack in Attack::ALL.into_iter().filter(is_wanted) {
        let row = measure(attack, &args).await?;
        println!("{}", row.text(attack));
        let breaks = row.broken();
        broken.extend(
            breaks
                .into_iter()
                .map(|what| format!("{}: {what}", attack.name())),
        );
    }
    for what in &broken {
        println!("BROKEN {what}");
    }
    ensure!(broken.is_empty(), "{} bounds are broken", broken.len());
    Ok(())
}

async fn measure(attack: Attack, args: &BenchArgs) -> Result<Row> {
    let mut stand = Stand::start(1).await?;
    let url = stand.fleet.url("/generate");
    // What the first requests take once for good is no attack's.
    let warm = Probe::start(&url, &stand.known);
    sleep(Duration::from_secs(args.before_secs) / 3).await;
    warm.stop().await;
    let probe = Probe::start(&url, &stand.known);
    sleep(Duration::from_secs(args.before_secs)).await;
    let before = probe.stop().await;
    let start = stand.usage()?;

    let extent = extent(attack, args.percent);
    let probe = Probe::start(&url, &stand.known);
    let began = Instant::now();
    let target = Target::of(&stand.fleet);
    let mut outcomes = attackers::attack(attack, target, extent).await?;
    // Few answers of others say little of the slow ones among them.
    while began.elapsed() < DURING_MIN {
        outcomes.merge(attackers::attack(attack, target, extent).await?);
    }
    let took = began.elapsed();
    let during = probe.stop().await;
    // Others go on: an allocator gives memory back when it is used.
    let probe = Probe::start(&url, &stand.known);
    sleep(LEFT_AFTER).await;
    probe.stop().await;
    stand.check_alive()?;
    for worker in &stand.fleet.workers {
        quiet(&stand.fleet.client, &worker.url()).await?;
    }
    let end = stand.usage()?;
    let memory = start.iter().zip(&end);
    let memory =
        memory.map(|(start, end)| [start.anonymous_bytes, end.peak_bytes, end.anonymous_bytes]);
    let names = stand.names().join("/");
    stand.end().await?;
    Ok(Row {
        outcomes: outcomes.to_string(),
        count: outcomes.total(),
        took,
        before,
        during,
        memory: memory.collect(),
        names,
    })
}

// === impl Row ===

impl Row {
    fn text(&self, attack: Attack) -> String {
        let mib = |bytes: u64| bytes >> 20;
        let each = |number: &dyn Fn(&[u64; 3]) -> String| {
            self.memory.iter().map(number).collect::<Vec<_>>().join("/")
        };
        let peaks = each(&|[_, peak, _]| mib(*peak).to_string());
        let left = each(&|[start, _, end]| format!("{:+}", left(*start, *end) >> 20));
        let millis = |answers: &Answers| {
            let [p50, p99] = [500, 990].map(|at| answers.quantile(at).as_secs_f64() * 1e3);
            format!("{p50:.1}/{p99:.1}")
        };
        let exact = if self.during.failures.is_empty() {
            "yes"
        } else {
            "NO"
        };
        format!(
            "{}: {} in {:.0} s: {}\n    others: p50/p99 {} ms before, {} ms during ({} answers), tokens \
             exact: {exact}\n    memory of {}: peak {peaks} MiB, a minute later {left} MiB",
            attack.name(),
            self.count,
            self.took.as_secs_f64(),
            self.outcomes,
            millis(&self.before),
            millis(&self.during),
            self.during.number(),
            self.names,
        )
    }

    fn broken(&self) -> Vec<String> {
        let mut broken = Vec::new();
        for at in [500, 990] {
            let [before, during] = [&self.before, &self.during].map(|answers| answers.quantile(at));
            if during.as_secs_f64() > before.as_secs_f64() * SLOWER_MAX {
                let name = at / 10;
                broken.push(format!(
                    "p{name} of others is {during:.1?} instead of {before:.1?}"
                ));
            }
        }
        if let Some(failure) = self.during.failures.first() {
            let number = self.during.failures.len();
            broken.push(format!("{number} answers of others failed: {failure}"));
        }
        for [start, _, end] in &self.memory {
            let left = left(*start, *end);
            if left > LEFT_BYTES_MAX {
                broken.push(format!(
                    "{} MiB are left in a process ({})",
                    left >> 20,
                    self.names
                ));
            }
        }
        broken
    }
}

fn left(start: u64, end: u64) -> i64 {
    end.cast_signed() - start.cast_signed()
}
