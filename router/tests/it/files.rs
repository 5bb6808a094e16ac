//! A router that may open few files: clients that say nothing keep no one out, and what it lacks is not blamed on its
//! workers. A real process, because the limit is the process's.

use crate::client::Client;
use crate::harness::until_open;
use crate::mock::{Answer, Mock};
use futures_util::future::join_all;
use pd_protocol::Role;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

/// A router before one worker, on an address of this test alone.
async fn start(test: u8, files: u32, worker: &Mock) -> (Child, SocketAddr) {
    let [.., high, low] = std::process::id().to_be_bytes();
    let host = Ipv4Addr::new(127, 66 + test, high, low);
    let router = env!("CARGO_BIN_EXE_pd-router");
    let line = format!(
        "ulimit -n {files}; exec {router} --host {host} --log-level error --worker-urls http://{}",
        worker.addr
    );
    let router = Command::new("sh")
        .args(["-c", &line])
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let addr = SocketAddr::from((host, 30000));
    until_open(addr).await;
    let client = Client::new(addr);
    while client.get("/ready").await.status() != 200 {}
    (router, addr)
}

#[tokio::test]
async fn silent_clients_beyond_all_files_keep_no_one_out() {
    let worker = Mock::start(Role::Unified).await;
    let (_router, addr) = start(0, 64, &worker).await;
    let mut silent = Vec::new();
    for _ in 0..80 {
        silent.push(TcpStream::connect(addr).await.unwrap());
    }
    let client = Client::new(addr);
    // Those that were let in are given a moment to ask.
    while client.post("/generate", "{}").await.status() != 200 {}
    for _ in 0..20 {
        assert_eq!(client.post("/generate", "{}").await.status(), 200);
    }
}

#[tokio::test]
async fn more_requests_than_files_are_refused_by_the_router_and_no_worker_is_blamed() {
    let worker = Mock::start(Role::Unified).await;
    worker.answer(Answer::StatusWhenReleased(200, "{}".to_owned()));
    let (_router, addr) = start(1, 64, &worker).await;
    let one = async || {
        let answer = Client::new(addr).post("/generate", "{}").await;
        (answer.status(), answer.text().to_owned())
    };
    let mut all = pin!(join_all((0..100).map(|_| one())));
    let answers = loop {
        tokio::select! {
            answers = &mut all => break answers,
            () = worker.until(|counts| counts.live > 0) => worker.release(),
        }
    };
    let served = answers.iter().filter(|(status, _)| *status == 200).count();
    assert!(served > 0, "{answers:?}");
    for (status, text) in &answers {
        let ours = text.contains("too_many_connections") || text.contains("too_many_open_files");
        assert!(*status == 200 || *status == 503 && ours, "{status}: {text}");
    }
    let metrics = Client::new(addr).get("/metrics").await;
    let text = metrics.text();
    let blamed = text.lines().filter(|line| line.contains("\"connect\""));
    assert_eq!(blamed.collect::<Vec<_>>(), [""; 0]);
    worker.answer(Answer::Json("{}".to_owned()));
    assert_eq!(one().await.0, 200);
}
