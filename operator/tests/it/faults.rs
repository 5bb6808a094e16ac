//! Processes that die, and the operator itself among them.

use crate::bench::{Bench, pid, pids, signal, wait_gone};
use std::fs::File;
use std::process::Command;

const ONE_EACH: [&str; 3] = ["decode-0-1", "prefill-0-1", "router-0-1"];

#[tokio::test]
async fn a_killed_worker_starts_again_in_its_place() {
    let bench = Bench::new("fault-worker");
    let mut operator = bench.start();
    let before = bench.wait_ready(&ONE_EACH).await;
    signal(pid(&before, "prefill"), "-KILL");
    operator.expect("ended with signal: 9 (SIGKILL); starts again");
    let after = bench
        .wait("ready again", |status| {
            status["phase"] == "Ready" && status["pods"][1]["restarts"] == 1
        })
        .await;
    assert_eq!(before["pods"][1]["address"], after["pods"][1]["address"]);
    assert_ne!(pid(&before, "prefill"), pid(&after, "prefill"));
}

#[tokio::test]
async fn a_killed_router_gets_its_workers_again() {
    let bench = Bench::new("fault-router");
    let _operator = bench.start();
    let before = bench.wait_ready(&ONE_EACH).await;
    signal(pid(&before, "router"), "-KILL");
    // The stand-in is ready only with a prefill and a decode worker.
    bench
        .wait("ready again", |status| {
            status["phase"] == "Ready" && status["pods"][2]["restarts"] == 1
        })
        .await;
}

#[tokio::test]
async fn no_process_outlives_a_killed_operator() {
    let bench = Bench::new("fault-operator");
    let mut operator = bench.start();
    let status = bench.wait_ready(&ONE_EACH).await;
    operator.signal("-KILL");
    operator.wait().await;
    wait_gone(&pids(&status)).await;
    assert_eq!(bench.status(), None);
}

#[tokio::test]
async fn a_second_signal_ends_everything_at_once() {
    let bench = Bench::new("fault-signal");
    bench.write_model("busy");
    let mut operator = bench.start();
    let status = bench.wait_ready(&ONE_EACH).await;
    operator.signal("-INT");
    operator.expect("decode-0-1: leaves");
    operator.signal("-INT");
    assert!(!operator.wait().await.success());
    wait_gone(&pids(&status)).await;
}

#[tokio::test]
async fn once_fails_with_a_worker_that_crashes() {
    let bench = Bench::new("fault-crash");
    bench.write_model("crash");
    let said = bench.refusal(&["--listen", "127.0.0.1:0", "--once"]);
    assert!(
        said.contains("fault-crash-decode-0-1 | the model is broken"),
        "{said}"
    );
    assert!(
        said.contains(
            "ended with exit status: 3: the model is broken; its own lines above say why"
        ),
        "{said}"
    );
}

#[tokio::test]
async fn a_full_disk_under_the_log_harms_no_deployment() {
    let bench = Bench::new("faults-full");
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut operator = bench.start_logging_to(full.into(), &["--listen", "127.0.0.1:0"]);
    let status = bench.wait_ready(&ONE_EACH).await;
    // Which is a line of the log.
    signal(pid(&status, "decode"), "-KILL");
    let healed = bench
        .wait("ready again", |status| {
            status["phase"] == "Ready" && status["pods"][0]["restarts"] == 1
        })
        .await;
    operator.signal("-INT");
    assert!(operator.wait().await.success());
    wait_gone(&pids(&healed)).await;
}

#[test]
fn an_error_that_cannot_be_written_is_an_exit_status_still() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut operator = Command::new(env!("CARGO_BIN_EXE_pd-operator"));
    let ended = operator
        .args(["local", "--file", "/no/such.yaml"])
        .stderr(full)
        .status();
    assert_eq!(ended.unwrap().code(), Some(1));
}
