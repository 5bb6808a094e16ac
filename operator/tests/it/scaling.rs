//! Pools that follow their load, and pools that only say what they would do.

use crate::bench::{Bench, pod_names};

const ONE_EACH: [&str; 3] = ["decode-0-1", "prefill-0-1", "router-0-1"];

fn mk_bench(name: &'static str, mode: &str) -> Bench {
    let bench = Bench::new(name);
    bench.write_model("loaded");
    let bounds = "{minReplicas: 1, maxReplicas: 2}";
    bench.write_pools(&format!(
        "{{prefill: {bounds}, decode: {bounds}}}\n  \
         autoscaling: {{mode: {mode}, scaleUpWindowSeconds: 1}}"
    ));
    bench
}

#[tokio::test]
async fn a_pool_that_is_always_busy_grows_and_says_why() {
    let bench = mk_bench("scaling-auto", "Auto");
    let mut operator = bench.start();
    operator.expect("prefill 1 → 2 (needs 1.");
    let grown = ["decode-0-1", "prefill-0-1", "prefill-1-1", "router-0-1"];
    let status = bench.wait_ready(&grown).await;
    let decisions = status["scaling"]["decisions"].as_array().unwrap();
    let grew = decisions
        .iter()
        .find(|decision| decision["from"]["prefill"] == 1 && decision["to"]["prefill"] == 2);
    assert_eq!(grew.unwrap()["reason"], "PrefillTokens", "{decisions:#?}");
}

#[tokio::test]
async fn advice_is_given_and_not_followed() {
    let bench = mk_bench("scaling-advise", "Advise");
    let _operator = bench.start();
    bench.wait_ready(&ONE_EACH).await;
    let status = bench
        .wait("advice", |status| {
            let newest = &status["scaling"]["decisions"][0];
            newest["to"]["prefill"] == 2
        })
        .await;
    assert_eq!(pod_names(&status).len(), ONE_EACH.len());
}
