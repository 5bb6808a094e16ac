//! A log that cannot be written harms no request.

use crate::agent::{command, tiny_model};
use crate::client::Client;
use serde_json::{Value, json};
use std::fs::File;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Child;
use tokio::time::{interval, timeout};

const LIMIT: Duration = Duration::from_secs(60);
const PORT: u16 = 30000;
const BOOTSTRAP_PORT: u16 = 8998;

/// An agent whose log is not read, so it has its own address and known ports.
struct Silent {
    child: Child,
    host: &'static str,
    client: Client,
}

impl Silent {
    async fn start(mode: &str, host: &'static str, stderr: Stdio) -> Self {
        let model = tiny_model();
        let model = model.to_str().unwrap();
        let mut args = vec!["--model-path", model, "--host", host, "--cpu-threads", "1"];
        args.extend(["--dtype", "float32", "--max-total-tokens", "8192"]);
        args.extend(["--disaggregation-mode", mode]);
        let mut command = command(&args);
        let mut child = command.stderr(stderr).spawn().unwrap();
        // Closes the pipe, if it is one.
        drop(child.stderr.take());
        let agent = Self {
            child,
            host,
            client: Client::new(),
        };
        let ready = timeout(LIMIT, agent.ready()).await;
        ready.expect("the agent starts in time");
        agent
    }

    async fn ready(&self) {
        let mut looks = interval(Duration::from_millis(10));
        while TcpStream::connect((self.host, PORT)).await.is_err() {
            looks.tick().await;
        }
        while self.client.get(&self.url("/health")).await.status != 200 {
            looks.tick().await;
        }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}:{PORT}{path}", self.host)
    }

    /// The port that decode's control messages go to.
    async fn control_port(&self) -> u16 {
        let url = format!(
            "http://{}:{BOOTSTRAP_PORT}/route?prefill_dp_rank=0&prefill_cp_rank=0&\
             target_tp_rank=0&target_pp_rank=0",
            self.host
        );
        let rank = self.client.get(&url).await.ok();
        let port = rank["rank_port"].as_u64().expect("a rank has a port");
        u16::try_from(port).unwrap()
    }
}

/// Sends a message that is no control message, and waits until the socket has read it.
async fn send_nonsense(host: &str, port: u16) {
    let mut peer = TcpStream::connect((host, port)).await.unwrap();
    let mut greeting = [0; 64];
    (greeting[0], greeting[9], greeting[10]) = (0xff, 0x7f, 3);
    greeting[12..16].copy_from_slice(b"NULL");
    peer.write_all(&greeting).await.unwrap();
    peer.read_exact(&mut greeting).await.unwrap();
    let ready = b"\x04\x1a\x05READY\x0bSocket-Type\x00\x00\x00\x04PUSH";
    peer.write_all(ready).await.unwrap();
    peer.write_all(b"\x00\x08nonsense").await.unwrap();
    // A frame beyond every bound: the gate closes the connection, and says so.
    let endless = b"\x02\xff\xff\xff\xff\xff\xff\xff\xff";
    peer.write_all(endless).await.unwrap();
    // The gate may reset the connection, which ends it as well.
    let _ = timeout(LIMIT, peer.read_to_end(&mut Vec::new()))
        .await
        .expect("the gate closes the connection");
}

async fn ask_pair(prefill: &Silent, decode: &Silent, room: u64) -> (Value, Value) {
    let body = json!({
        "text": "the sea", "sampling_params": {"max_new_tokens": 4, "ignore_eos": true},
        "bootstrap_host": prefill.host, "bootstrap_port": BOOTSTRAP_PORT, "bootstrap_room": room,
    });
    let (prefill_url, decode_url) = (prefill.url("/generate"), decode.url("/generate"));
    let legs = async {
        tokio::join!(
            prefill.client.post(&prefill_url, &body),
            decode.client.post(&decode_url, &body)
        )
    };
    let (first, rest) = timeout(LIMIT, legs).await.expect("both legs are answered");
    (first.ok(), rest.ok())
}

async fn a_pair_outlives(hosts: [&'static str; 2], stderr: impl Fn() -> Stdio) {
    let (mut prefill, decode) = tokio::join!(
        Silent::start("prefill", hosts[0], stderr()),
        Silent::start("decode", hosts[1], stderr())
    );
    ask_pair(&prefill, &decode, 1).await;
    let control_port = prefill.control_port().await;
    send_nonsense(prefill.host, control_port).await;
    let (_, rest) = ask_pair(&prefill, &decode, 2).await;
    assert_eq!(rest["meta_info"]["completion_tokens"], 4);
    assert!(prefill.child.try_wait().unwrap().is_none());
}

#[tokio::test]
async fn a_full_disk_under_the_log_harms_no_request() {
    a_pair_outlives(["127.0.91.1", "127.0.91.2"], || {
        let full = File::options().write(true).open("/dev/full");
        full.unwrap().into()
    })
    .await;
}

#[tokio::test]
async fn a_closed_log_harms_no_request() {
    a_pair_outlives(["127.0.91.3", "127.0.91.4"], Stdio::piped).await;
}
