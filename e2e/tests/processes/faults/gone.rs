//! Clients that leave, and transfers that fail at random.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_frees_both_sides() -> Result<()> {
    let fleet = smollm2(1, 1, "tcp").start().await?;
    let (prefill, decode) = (
        fleet.worker(Role::Prefill).url(),
        fleet.worker(Role::Decode).url(),
    );

    // Mid-prefill: 2,000 tokens in chunks of 128 are far from done when the client leaves.
    let leaving = tokio::spawn({
        let (client, url) = (fleet.client.clone(), fleet.url("/generate"));
        async move { client.post(&url, &greedy(&ids(1, 2000), 8)).await }
    });
    reached(&fleet, &prefill, "pdserve_num_steps_total", 2.0).await?;
    leaving.abort();
    for url in [&prefill, &decode] {
        quiet(&fleet.client, url)
            .await
            .context("left mid-prefill")
            .with_context(|| fleet.logs())?;
    }

    // Mid-decode: after three tokens of four hundred.
    let request = streamed(&ids(2, 40), 400);
    let mut stream = fleet
        .client
        .stream(&fleet.url("/generate"), &request)
        .await?;
    for _ in 0..3 {
        ensure!(stream.next().await?.is_some(), "the stream ended early");
    }
    drop(stream);
    for url in [&prefill, &decode] {
        quiet(&fleet.client, url)
            .await
            .context("left mid-decode")
            .with_context(|| fleet.logs())?;
    }
    recovered(&fleet, None).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_requests_with_ten_percent_injected_failures() -> Result<()> {
    for transport in ["shm", "tcp"] {
        let mut spec = FleetSpec::new(binaries::tiny_model("tiny-llama"));
        spec.prefill = 2;
        spec.decode = 2;
        spec.agent_args = words(&format!("--disaggregation-transfer-backend {transport}"));
        spec.env = vec![(pd_protocol::labels::ENV_TEST_FAILURE_PROB, "0.1".to_owned())];
        spec.router_args = words("--disable-circuit-breaker");
        let fleet = spec.start().await?;
        let (mut answered, mut failed) = (0, 0);
        for wave in 0..10_u32 {
            let mut load = Load::default();
            for i in 0..50_u64 {
                let request = greedy(&ids(i, 20 + 2 * usize::try_from(i)?), 12 + wave);
                load.send(&fleet.client, &fleet.url("/generate"), request);
            }
            let outcomes = load
                .outcomes(WORK_LIMIT)
                .await
                .with_context(|| fleet.logs())?;
            let (a, f) = count(&outcomes)?;
            (answered, failed) = (answered + a, failed + f);
        }
        eprintln!("10 % injected failures over {transport}: {answered} answered, {failed} failed");
        ensure!(
            answered + failed == 500 && answered >= 490,
            "retries should save nearly all"
        );
        for worker in &fleet.workers {
            quiet(&fleet.client, &worker.url())
                .await
                .with_context(|| fleet.logs())?;
        }
    }
    Ok(())
}
