//! A log that cannot be written harms no request: a real router process, because the log is the
//! process's.

use crate::client::Client;
use crate::harness::until_open;
use crate::mock::{Answer, Mock};
use pd_protocol::Role;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// No one reads the router's log, so it has known ports on an address that is this test's of this
/// process alone.
async fn serves_and_ends(test: u8, log_level: &str, stderr: Stdio) {
    let [.., high, low] = std::process::id().to_be_bytes();
    let host = Ipv4Addr::new(127, 62 + test, high, low);
    let worker = Mock::start(Role::Unified).await;
    let refusal = r#"{"error":{"message":"no","type":"t","param":null,"code":null}}"#;
    worker.answer(Answer::Status(400, refusal.to_owned()));
    let worker_url = format!("http://{}", worker.addr);
    let mut router = Command::new(env!("CARGO_BIN_EXE_pd-router"))
        .args(["--host", &host.to_string(), "--worker-urls", &worker_url])
        .args(["--log-level", log_level])
        .stderr(stderr)
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let addr = SocketAddr::from((host, 30000));
    until_open(addr).await;
    let client = Client::new(addr);
    while client.get("/ready").await.status() != 200 {}
    // The one that the router refuses, and the one that the worker does, both of which are logged.
    assert_eq!(client.post("/generate", "{").await.status(), 400);
    assert_eq!(client.post("/generate", "{}").await.text(), refusal);
    let pid = Pid::from_raw(router.id().unwrap().try_into().unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(30), router.wait()).await;
    assert_eq!(ended.unwrap().unwrap().code(), Some(0));
}

#[tokio::test]
async fn a_full_disk_under_the_log_changes_nothing() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    serves_and_ends(0, "trace", full.into()).await;
}

#[tokio::test]
async fn a_closed_pipe_changes_nothing() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    serves_and_ends(1, "trace", writer.into()).await;
}

#[tokio::test]
async fn what_clients_do_wrong_is_no_line_of_the_log() {
    let (mut reader, writer) = std::io::pipe().unwrap();
    serves_and_ends(2, "info", writer.into()).await;
    let mut log = String::new();
    reader.read_to_string(&mut log).unwrap();
    assert!(log.contains("worker is ready"), "{log}");
    assert!(!log.contains("WARN") && !log.contains("400"), "{log}");
}
