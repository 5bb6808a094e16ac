//! Every attack, a few times each: another client's tokens stay exact, and pages, rooms, descriptors and connections
//! all return.

use anyhow::{Context, Result, ensure};
use pd_e2e::attacks::usage::Usage;
use pd_e2e::attacks::{Attack, Extent, Outcomes, Target};
use pd_e2e::binaries;
use pd_e2e::fleet::{Fleet, FleetSpec, eventually};
use pd_e2e::load::{Known, Traffic};
use pd_e2e::metrics::Metrics;
use pd_e2e::process::Process;
use pd_e2e::prompts::{greedy, ids};
use pd_e2e::quiet::quiet;
use pd_protocol::Role;
use std::sync::Arc;
use std::time::Duration;

/// Pauses of the other client, which leave the cores to what is proven.
const PAUSE: Duration = Duration::from_millis(20);
const HANG_LIMIT: Duration = Duration::from_secs(60);
const RETURNED_WITHIN: Duration = Duration::from_secs(30);

fn extent(attack: Attack) -> Extent {
    let (count, millis) = match attack {
        Attack::LongPrompts => (2, 0),
        Attack::UnreadStreams | Attack::AbandonedStreams => (8, 1000),
        Attack::UnfinishedBodies => (8, 500),
        Attack::HalfHeads
        | Attack::IdleConnections
        | Attack::HeaderFloods
        | Attack::UnfinishedGreetings
        | Attack::UnfinishedMessages
        | Attack::Garbage
        | Attack::StolenRegistrations
        | Attack::StrangersAborts => (60, 500),
    };
    Extent {
        count,
        hold: Duration::from_millis(millis),
    }
}

/// What became of the tries is what should have.
fn is_right(attack: Attack, outcomes: &Outcomes) -> bool {
    let all = |outcome: &str| outcomes.number(outcome) == outcomes.total();
    match attack {
        Attack::HeaderFloods => all("answered 431"),
        Attack::LongPrompts => {
            outcomes.number("answered 413") + outcomes.number("answered 503") == 2
        }
        Attack::StolenRegistrations => all("answered 400"),
        Attack::AbandonedStreams => all("abandoned"),
        // Deadlines and bounds are longer and larger than this.
        Attack::HalfHeads | Attack::IdleConnections | Attack::UnfinishedBodies => all("open"),
        Attack::UnreadStreams
        | Attack::UnfinishedGreetings
        | Attack::UnfinishedMessages
        | Attack::Garbage
        | Attack::StrangersAborts => outcomes.total() == extent(attack).count,
    }
}

fn processes(fleet: &Fleet) -> Vec<&Process> {
    let workers = fleet.workers.iter().map(|worker| &worker.process);
    workers.chain([&fleet.router]).collect()
}

fn descriptors(fleet: &Fleet) -> Result<Vec<usize>> {
    let used = processes(fleet).into_iter().map(Usage::of);
    used.map(|used| Ok(used?.descriptors)).collect()
}

async fn returned(fleet: &Fleet, known: &Known, before: &[usize]) -> Result<()> {
    for worker in &fleet.workers {
        quiet(&fleet.client, &worker.url()).await?;
    }
    eventually(RETURNED_WITHIN, || async {
        // What is kept for the next request is looked through when it comes.
        let asked = known
            .ask(&fleet.client, &fleet.url("/generate"), false)
            .await;
        asked.map_err(anyhow::Error::msg)?;
        let now = descriptors(fleet)?;
        let is_back = now.iter().zip(before).all(|(now, before)| now <= before);
        ensure!(is_back, "descriptors were {before:?} and are {now:?}");
        let router = Metrics::scrape(&fleet.client, &fleet.url("")).await?;
        for name in ["pd_router_in_flight", "pd_router_rooms_in_flight"] {
            ensure!(router.has(name) && router.sum(name, &[]) == 0.0, "{name}");
        }
        Ok(())
    })
    .await
}

/// A stranger's registrations are a few lines, and a number.
async fn refusals_are_counted_and_not_all_logged(fleet: &Fleet) -> Result<()> {
    let tries = extent(Attack::StolenRegistrations).count;
    let prefill = fleet.worker(Role::Prefill);
    let metrics = Metrics::scrape(&fleet.client, &prefill.url()).await?;
    let counted = metrics.sum("pdserve_bootstrap_registrations_refused_total", &[]);
    ensure!(
        counted >= tries as f64,
        "{counted} of {tries} registrations"
    );
    let log = prefill.process.log();
    let logged = log.matches("refused the registration").count();
    ensure!(
        logged > 0 && logged < tries,
        "{logged} lines for {tries} registrations"
    );
    let open = metrics.sum("pdserve_connections", &["listener=\"bootstrap\""]);
    // Decode keeps the one that it asked over.
    ensure!(open <= 1.0, "{open} connections to the bootstrap server");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attacks_change_no_token_of_another_client_and_leave_nothing_behind() -> Result<()> {
    let mut fleet = FleetSpec::new(binaries::tiny_model("tiny-llama"))
        .start()
        .await?;
    let url = fleet.url("/generate");
    let known = Known::learn(&fleet.client, &url, greedy(&ids(1, 40), 8)).await?;
    let target = Target::of(&fleet);
    let questions = Arc::new(vec![known.clone()]);
    // The connections of the clients and of the probes are there from the first one on.
    let traffic = Traffic::start(&url, &questions, 2, PAUSE);
    Attack::HalfHeads
        .run(&target, extent(Attack::HalfHeads))
        .await?;
    traffic.stop(HANG_LIMIT).await?;
    let before = descriptors(&fleet)?;
    for attack in Attack::ALL {
        let name = attack.name();
        let traffic = Traffic::start(&url, &questions, 2, PAUSE);
        let ran = attack.run(&target, extent(attack)).await;
        let tally = traffic.stop(HANG_LIMIT).await?;
        let outcomes = ran.with_context(|| format!("{name}\n{}", fleet.logs()))?;
        ensure!(
            tally.failures.is_empty() && tally.answered > 0,
            "{name}: of the other clients {tally:?}\n{}",
            fleet.logs()
        );
        ensure!(is_right(attack, &outcomes), "{name}: {outcomes}");
        let back = returned(&fleet, &known, &before).await;
        back.with_context(|| format!("{name}: {outcomes}\n{}", fleet.logs()))?;
        eprintln!("{name}: {outcomes}");
    }
    refusals_are_counted_and_not_all_logged(&fleet).await?;
    fleet.router.check_alive()?;
    let logs = fleet.logs();
    ensure!(!logs.contains("panicked"), "a thread panicked\n{logs}");
    Ok(())
}
