//! A frozen prefill: left within the heartbeat bound, and harmless when it wakes.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_prefill_is_left_within_the_heartbeat_and_its_late_writes_do_no_harm() -> Result<()>
{
    for transport in ["shm", "tcp"] {
        let reference = {
            let spec = smollm2(1, 1, transport);
            let worker = spec.start_worker(Role::Unified, address::fresh()).await?;
            let mut answers = Vec::new();
            for seed in 0..8 {
                let url = format!("{}/generate", worker.url());
                answers.push(
                    Client::new()
                        .post(&url, &greedy(&ids(seed, 500), 8))
                        .await?
                        .json()?,
                );
            }
            answers
        };
        let fleet = smollm2(2, 1, transport).start().await?;
        let (load, victim, hit) = mid_transfer(&fleet, 500).await?;
        fleet.worker(Role::Prefill).process.signal(Signal::STOP)?;
        let frozen = Instant::now();
        let left_after = left(&fleet, &victim, FROZEN_WITHIN).await?;
        let outcomes = load
            .outcomes(WORK_LIMIT)
            .await
            .with_context(|| fleet.logs())?;
        let (answered, failed) = count(&outcomes)?;
        eprintln!(
            "SIGSTOP prefill over {transport}: {hit} requests left it within {left_after:?}, \
             {answered} answered, {failed} failed"
        );
        let others = Duration::from_secs(20).saturating_sub(frozen.elapsed());
        // The same pages are reused while the frozen writer sleeps, then it wakes.
        let mut again = start_load(&fleet, 4, 500, 8);
        tokio::time::sleep(others).await;
        fleet.worker(Role::Prefill).process.signal(Signal::CONT)?;
        for seed in 4..8 {
            let request = streamed(&ids(seed, 500), 8);
            again.send(&fleet.client, &fleet.url("/generate"), request);
        }
        for outcome in again
            .outcomes(WORK_LIMIT)
            .await
            .with_context(|| fleet.logs())?
        {
            let answer = outcome.result.map_err(anyhow::Error::msg)?;
            let expected = &reference[outcome.index];
            ensure!(
                essence(&answer)["output_ids"] == essence(expected)["output_ids"],
                "request {} differs after the writer woke\n{}",
                outcome.index,
                fleet.logs()
            );
        }
        recovered(&fleet, None).await?;
    }
    Ok(())
}
