//! From start to stop: ready, edits, drain, end.

use crate::bench::{Bench, pid, pids, wait_gone};

const ONE_EACH: [&str; 3] = ["decode-0-1", "prefill-0-1", "router-0-1"];

#[tokio::test]
async fn a_deployment_gets_ready_and_leaves_its_keys_alone_behind() {
    let bench = Bench::new("life-ready");
    let mut operator = bench.start();
    let line = operator.expect("Ready in");
    let status = bench.wait_ready(&ONE_EACH).await;
    assert!(
        line.ends_with(&format!("{}/v1", status["endpoint"].as_str().unwrap())),
        "{line}"
    );
    operator.signal("-INT");
    assert!(operator.wait().await.success());
    wait_gone(&pids(&status)).await;
    assert_eq!(bench.status(), None);
    let left = std::fs::read_dir(bench.path("cache/local")).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["default.life-ready.peer-keys"]);
}

#[tokio::test]
async fn workers_are_reached_by_tls_with_the_deployments_key() {
    let bench = Bench::new("life-keys");
    let _operator = bench.start();
    let status = bench.wait_ready(&ONE_EACH).await;
    for pod in status["pods"].as_array().unwrap() {
        let scheme = match pod["component"].as_str() {
            Some("router") => "http://",
            _ => "https://",
        };
        let url = pod["url"].as_str().unwrap();
        assert!(url.starts_with(scheme), "{url}");
        assert!(pod["admin_url"].as_str().unwrap().starts_with("http://"));
    }
}

#[tokio::test]
async fn an_edit_adds_a_worker_and_another_drains_it_while_the_router_stays() {
    let bench = Bench::new("life-edit");
    let mut operator = bench.start();
    let before = bench.wait_ready(&ONE_EACH).await;
    bench.write_pools("{decode: {replicas: 2}}");
    bench
        .wait_ready(&["decode-0-1", "decode-1-1", "prefill-0-1", "router-0-1"])
        .await;
    bench.write_pools("{decode: {replicas: 1}}");
    let after = bench.wait_ready(&ONE_EACH).await;
    for component in ["router", "prefill", "decode"] {
        assert_eq!(
            pid(&before, component),
            pid(&after, component),
            "{component}"
        );
    }
    operator.signal("-TERM");
    assert!(operator.wait().await.success());
}

#[tokio::test]
async fn a_changed_flag_replaces_the_workers_of_its_pool_alone() {
    let bench = Bench::new("life-flag");
    let _operator = bench.start();
    let before = bench.wait_ready(&ONE_EACH).await;
    bench.write_pools("{decode: {args: [{name: max-running-requests, value: '8'}]}}");
    let after = bench
        .wait_ready(&["decode-1-1", "prefill-0-1", "router-0-1"])
        .await;
    assert_eq!(pid(&before, "prefill"), pid(&after, "prefill"));
    assert_eq!(pid(&before, "router"), pid(&after, "router"));
}

#[tokio::test]
async fn pools_can_be_emptied_and_filled_again() {
    let bench = Bench::new("life-zero");
    let _operator = bench.start();
    bench.wait_ready(&ONE_EACH).await;
    bench.write_pools("{prefill: {replicas: 0}, decode: {replicas: 0}}");
    bench
        .wait("empty", |status| {
            crate::bench::pod_names(status) == ["life-zero-router-0-1"]
        })
        .await;
    bench.write_pools("{}");
    bench
        .wait_ready(&["decode-0-2", "prefill-0-2", "router-0-1"])
        .await;
}

#[tokio::test]
async fn a_busy_worker_leaves_only_at_its_deadline() {
    let bench = Bench::new("life-busy");
    bench.write_model("busy");
    let _operator = bench.start();
    bench.write_pools("{decode: {replicas: 2}}\n  drain: {timeoutSeconds: 1}");
    let both = ["decode-0-1", "decode-1-1", "prefill-0-1", "router-0-1"];
    bench.wait_ready(&both).await;
    bench.write_pools("{decode: {replicas: 1}}\n  drain: {timeoutSeconds: 1}");
    bench
        .wait("draining", |status| {
            status["pods"][1]["state"] == "Draining"
        })
        .await;
    bench.wait_ready(&ONE_EACH).await;
}

#[tokio::test]
async fn once_stops_as_soon_as_all_is_ready() {
    let bench = Bench::new("life-once");
    let mut operator = bench.start_with(&["--listen", "127.0.0.1:0", "--once"]);
    operator.expect("Ready in");
    assert!(operator.wait().await.success());
}

#[tokio::test]
async fn two_deployments_run_beside_each_other() {
    let (one, two) = (Bench::new("life-one"), Bench::new("life-two"));
    let (_first, _second) = (one.start(), two.start());
    one.wait_ready(&ONE_EACH).await;
    two.wait_ready(&ONE_EACH).await;
}

#[tokio::test]
async fn the_status_of_an_idle_machine_is_an_empty_list() {
    assert_eq!(Bench::new("life-idle").status(), None);
}
