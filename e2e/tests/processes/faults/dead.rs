//! Processes killed with -9: their requests go elsewhere or end with a reason, within 2 s.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_prefill_is_left_within_two_seconds_and_loses_no_request() -> Result<()> {
    for transport in ["shm", "tcp"] {
        let mut fleet = smollm2(2, 1, transport).start().await?;
        let (load, victim, hit) = mid_transfer(&fleet, 700).await?;
        fleet
            .worker_mut(Role::Prefill)
            .process
            .signal(Signal::KILL)?;
        let left_after = left(&fleet, &victim, DEAD_WITHIN).await?;
        let outcomes = load
            .outcomes(WORK_LIMIT)
            .await
            .with_context(|| fleet.logs())?;
        let (answered, failed) = count(&outcomes)?;
        eprintln!(
            "kill -9 prefill mid-transfer over {transport}: {hit} requests left it within \
             {left_after:?}, {answered} answered, {failed} failed"
        );
        ensure!(
            failed == 0,
            "nothing had reached a client yet: {outcomes:?}\n{}",
            fleet.logs()
        );
        recovered(&fleet, Some(0)).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_decode_ends_its_streams_with_a_reason_within_two_seconds() -> Result<()> {
    for transport in ["shm", "tcp"] {
        let mut fleet = smollm2(1, 2, transport).start().await?;
        let loaded = Instant::now();
        let load = start_load(&fleet, 6, 60, 400);
        let victim = fleet.worker(Role::Decode).url();
        reached(&fleet, &victim, "pdserve_generation_tokens_total", 20.0).await?;
        let killed_at = loaded.elapsed();
        fleet
            .worker_mut(Role::Decode)
            .process
            .signal(Signal::KILL)?;
        let outcomes = load
            .outcomes(WORK_LIMIT)
            .await
            .with_context(|| fleet.logs())?;
        let (answered, failed) = count(&outcomes)?;
        let slowest = outcomes
            .iter()
            .filter(|o| o.result.is_err())
            .map(|o| o.took)
            .max();
        eprintln!(
            "kill -9 decode mid-stream over {transport}: {answered} answered, {failed} failed"
        );
        ensure!(
            failed > 0 && answered > 0,
            "one of two decode workers died: {outcomes:?}"
        );
        let bound = killed_at + DEAD_WITHIN;
        ensure!(
            slowest.is_some_and(|took| took < bound),
            "killed at {killed_at:?}: {slowest:?}"
        );
        let victim = fleet.workers.iter().position(|w| w.role == Role::Decode);
        recovered(&fleet, victim).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_router_leaves_no_orphans() -> Result<()> {
    let mut fleet = smollm2(1, 1, "shm").start().await?;
    let load = start_load(&fleet, 4, 300, 400);
    let decode = fleet.worker(Role::Decode).url();
    reached(&fleet, &decode, "pdserve_generation_tokens_total", 10.0).await?;
    fleet.router.signal(Signal::KILL)?;
    for outcome in load.outcomes(DEAD_WITHIN).await? {
        ensure!(outcome.result.is_err(), "the router is dead: {outcome:?}");
    }
    for worker in &fleet.workers {
        quiet(&fleet.client, &worker.url())
            .await
            .with_context(|| fleet.logs())?;
    }
    fleet.router = fleet
        .spec
        .start_router(&fleet.workers, fleet.router_address)
        .await?;
    recovered(&fleet, None).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prefill_back_on_its_address_is_a_new_one() -> Result<()> {
    for transport in ["shm", "tcp"] {
        let mut spec = FleetSpec::new(binaries::tiny_model("tiny-llama"));
        spec.agent_args = words(&format!("--disaggregation-transfer-backend {transport}"));
        spec.router_args = words("--health-check-interval-secs 1");
        let mut fleet = spec.start().await?;
        recovered(&fleet, None).await?;
        for _ in 0..3 {
            let address = fleet.worker(Role::Prefill).address;
            fleet.worker(Role::Prefill).process.signal(Signal::KILL)?;
            fleet
                .worker_mut(Role::Prefill)
                .process
                .wait_exit(DEAD_WITHIN)
                .await?;
            let spec = fleet.spec.clone();
            *fleet.worker_mut(Role::Prefill) = spec.start_worker(Role::Prefill, address).await?;
            eventually(FROZEN_WITHIN, || async {
                let request = greedy(&ids(5, 40), 8);
                let answer = fleet.client.post(&fleet.url("/generate"), &request).await?;
                ensure!(answer.status == 200, "{}: {}", answer.status, answer.text());
                Ok(())
            })
            .await
            .with_context(|| fleet.logs())?;
        }
        recovered(&fleet, None).await?;
    }
    Ok(())
}
