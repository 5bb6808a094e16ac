//! The probe between two processes: a table if they fit, and an error if they do not.

use crate::agent::{Agent, command};
use crate::client::Client;
use hyper::Method;
use serde_json::{Value, json};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Child;
use tokio::time::timeout;

/// Sixteen pages.
const BYTES: &str = "1048576";
/// A probe of so few takes far less; a busy machine may take its time.
const LIMIT: Duration = Duration::from_secs(60);

/// The side that plays prefill, ready; killed when dropped.
struct Prefill {
    _child: Child,
    address: String,
}

impl Prefill {
    async fn start(flags: &[&str]) -> Self {
        let mut args = vec!["kv-probe", "--disaggregation-bootstrap-port", "0"];
        args.extend(["--bytes", BYTES]);
        args.extend(flags);
        let mut child = command(&args).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = child.stdout.take().expect("stdout is piped");
        let mut lines = BufReader::new(stdout).lines();
        let line = timeout(LIMIT, lines.next_line()).await;
        let line = line.expect("it starts in time");
        let line = line.unwrap().expect("it says where it listens");
        let (_, address) = line.split_once("--peer ").expect("it says what to run");
        Self {
            address: address.to_owned(),
            _child: child,
        }
    }
}

/// Runs the other side to its end: whether it succeeded, what it printed and what it logged.
async fn probe(peer: &str, flags: &[&str]) -> (bool, String, String) {
    let mut args = vec!["kv-probe", "--peer", peer, "--rounds", "2"];
    args.extend(["--bytes", BYTES]);
    args.extend(flags);
    let output = timeout(LIMIT, command(&args).output()).await;
    let output = output.expect("it ends in time").unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.success(),
        text(output.stdout),
        text(output.stderr),
    )
}

async fn table(peer: &str, flags: &[&str]) -> Value {
    let mut all = vec!["--format", "json"];
    all.extend(flags);
    let (succeeded, printed, log) = probe(peer, &all).await;
    assert!(succeeded, "{log}");
    printed.parse().unwrap()
}

/// The log of a probe that fails.
async fn refusal(peer: &str, flags: &[&str]) -> String {
    let (succeeded, printed, log) = probe(peer, flags).await;
    assert!(!succeeded && printed.is_empty(), "{printed}");
    log
}

#[tokio::test]
async fn a_table_is_printed_over_each_transport() {
    let prefill = Prefill::start(&[]).await;
    for (backend, transport) in [("tcp", "tcp"), ("shm", "shm"), ("auto", "shm")] {
        let flags = ["--disaggregation-transfer-backend", backend];
        let table = table(&prefill.address, &flags).await;
        assert_eq!(table["transport"], transport);
        assert_eq!(
            (&table["sessions"], &table["rounds"]),
            (&json!(1), &json!(2))
        );
        let rows = table["rows"].as_array().unwrap();
        let pieces: Vec<_> = rows.iter().map(|row| &row["pieces"]).collect();
        assert_eq!(pieces, [16, 1], "of 64 KiB and of 1 MiB");
        for row in rows {
            assert_eq!(row["bytes"], 1 << 20);
            let [min, median, max] = ["min", "median", "max"].map(|figure| {
                let figure = row["gb_per_s"][figure].as_f64();
                figure.expect("a rate is a number")
            });
            assert!(0.0 < min && min <= median && median <= max, "{row}");
            assert!(row["cpu_s_per_gb"]["decode"].as_f64() > Some(0.0), "{row}");
        }
        let latency = &table["latency"];
        assert_eq!(
            (&latency["bytes"], &latency["writes"]),
            (&json!(65_536), &json!(200))
        );
        assert!(latency["p50_us"].as_f64() <= latency["p99_us"].as_f64());
    }
}

#[tokio::test]
async fn the_text_names_the_transport_and_every_row() {
    let prefill = Prefill::start(&[]).await;
    let (succeeded, printed, log) = probe(&prefill.address, &[]).await;
    assert!(succeeded, "{log}");
    for part in [
        "over shm: 1 session, 2 rounds",
        "16 x 64 KiB",
        "1 x 1 MiB",
        "p99",
    ] {
        assert!(printed.contains(part), "{part}\n{printed}");
    }
}

#[tokio::test]
async fn several_sessions_receive_at_once() {
    let prefill = Prefill::start(&[]).await;
    let tcp = ["--disaggregation-transfer-backend", "tcp"];
    let table = table(&prefill.address, &[&["--sessions", "3"], &tcp[..]].concat()).await;
    assert_eq!(table["sessions"], 3);
    assert_eq!(table["rows"][0]["pieces"], 5, "a third of sixteen");
    assert_eq!(table["rows"][0]["bytes"], 15 << 16);
}

#[tokio::test]
async fn a_round_is_run_for_each_line_of_standard_input() {
    let prefill = Prefill::start(&[]).await;
    let args = [
        "kv-probe",
        "--peer",
        &prefill.address,
        "--bytes",
        BYTES,
        "--rounds-from-stdin",
    ];
    let mut child = command(&args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().expect("stdin is piped");
    stdin.write_all(b"16 65536\n1 1048576\n").await.unwrap();
    drop(stdin);
    let output = timeout(LIMIT, child.wait_with_output()).await;
    let output = output.expect("it ends in time").unwrap();
    assert!(output.status.success());
    let printed = String::from_utf8(output.stdout).unwrap();
    let rounds: Vec<Value> = printed.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(rounds.len(), 2);
    for round in rounds {
        assert_eq!(round["bytes"], 1 << 20);
        assert!(round["seconds"].as_f64() > Some(0.0), "{round}");
    }
}

#[tokio::test]
async fn a_peer_that_cannot_be_reached_is_named_with_what_to_do() {
    // The port's listener is gone.
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = gone.local_addr().unwrap().to_string();
    drop(gone);
    let log = refusal(&address, &[]).await;
    let says = format!("cannot reach {address}; run `pd-agent kv-probe` on that node first");
    assert!(log.contains(&says) && log.contains("refused"), "{log}");
}

#[tokio::test]
async fn a_peer_that_is_not_a_probe_is_reported() {
    let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = other.local_addr().unwrap().to_string();
    let answering = tokio::spawn(async move {
        let (mut asked, _) = other.accept().await.unwrap();
        asked.write_all(b"220 ready\r\n").await.unwrap();
    });
    let log = refusal(&address, &[]).await;
    let says = format!("{address} does not answer as a kv-probe does");
    assert!(log.contains(&says), "{log}");
    answering.await.unwrap();
}

#[tokio::test]
async fn incompatible_sides_learn_why() {
    let prefill = Prefill::start(&["--disaggregation-transfer-backend", "shm"]).await;
    let log = refusal(&prefill.address, &["--bytes", "2097152"]).await;
    assert!(log.contains("has 16 pages, but 32 were requested"), "{log}");
    let log = refusal(
        &prefill.address,
        &["--disaggregation-transfer-backend", "tcp"],
    )
    .await;
    assert!(
        log.contains("no transport in common: prefill offers [shm], decode takes [tcp]"),
        "{log}"
    );
    let log = refusal(
        &prefill.address,
        &["--disaggregation-transfer-backend", "fake"],
    )
    .await;
    assert!(log.contains("fake transfers nothing"), "{log}");
}

#[tokio::test]
async fn a_prefill_that_serves_is_no_probe() {
    let flags = ["--disaggregation-mode", "prefill"];
    let flags = [&flags[..], &["--disaggregation-bootstrap-port", "0"]].concat();
    let agent = Agent::start(&flags).await;
    let address = format!("127.0.0.1:{}", agent.bootstrap_port);
    let log = refusal(&address, &[]).await;
    assert!(
        log.contains(&format!("no kv-probe runs on {address}")),
        "{log}"
    );
}

#[tokio::test]
async fn strangers_do_not_disturb_the_next_probe() {
    let prefill = Prefill::start(&[]).await;
    let mut stranger = TcpStream::connect(&prefill.address).await.unwrap();
    stranger.write_all(&[0xff; 4096]).await.unwrap();
    let mut answer = Vec::new();
    // Closed, with or without an answer.
    let closed = timeout(LIMIT, stranger.read_to_end(&mut answer)).await;
    closed.expect("garbage closes the connection").ok();
    let url = format!("http://{}/kv-probe", prefill.address);
    let client = Client::new();
    for (body, status) in [
        (json!({"bootstrap_room": 0, "page_indices": [0]}), 400),
        (json!({"bootstrap_room": 1, "page_indices": [-1]}), 400),
        (json!({"bootstrap_room": 1, "page_indices": [16]}), 400),
        (json!([]), 400),
    ] {
        assert_eq!(client.post(&url, &body).await.status, status, "{body}");
    }
    let large = vec![b' '; (2 << 20) + 1];
    assert_eq!(client.send(Method::POST, &url, large).await.status, 413);
    table(&prefill.address, &[]).await;
}
