//! Clients in a closed loop, each on one kept connection.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

pub(crate) struct Load {
    pub(crate) addr: SocketAddr,
    pub(crate) stream: bool,
    pub(crate) clients: usize,
    pub(crate) prompt_bytes: usize,
}

/// One entry per request, sorted.
#[derive(Default)]
pub(crate) struct Measured {
    pub(crate) total_us: Vec<u128>,
    pub(crate) first_us: Vec<u128>,
}

impl Load {
    pub(crate) async fn run(&self, duration: Duration) -> Measured {
        let body = Bytes::from(format!(
            r#"{{"model":"m","stream":{},"max_tokens":32,"messages":[{{"role":"user","content":"{}"}}]}}"#,
            self.stream,
            "x".repeat(self.prompt_bytes),
        ));
        let end = Instant::now() + duration;
        let clients: Vec<_> = (0..self.clients)
            .map(|_| tokio::spawn(client(self.addr, body.clone(), end)))
            .collect();
        let mut all = Measured::default();
        for client in clients {
            let measured = client.await.unwrap();
            all.total_us.extend(measured.total_us);
            all.first_us.extend(measured.first_us);
        }
        all.total_us.sort_unstable();
        all.first_us.sort_unstable();
        all
    }
}

async fn client(addr: SocketAddr, body: Bytes, end: Instant) -> Measured {
    let stream = TcpStream::connect(addr).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut measured = Measured::default();
    while Instant::now() < end {
        let request = Request::post("/v1/chat/completions")
            .header("host", "router")
            .header("content-type", "application/json")
            .body(Full::new(body.clone()))
            .unwrap();
        let sent = Instant::now();
        sender.ready().await.unwrap();
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), 200);
        let mut body = response.into_body();
        let mut first = None;
        while let Some(frame) = body.frame().await {
            frame.unwrap();
            first.get_or_insert_with(|| sent.elapsed());
        }
        measured.total_us.push(sent.elapsed().as_micros());
        measured
            .first_us
            .push(first.unwrap_or_default().as_micros());
    }
    measured
}

/// Of sorted values.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an index near the quantile will do"
)]
pub(crate) fn quantile(sorted: &[u128], share: f64) -> u128 {
    let idx = (sorted.len() as f64 * share) as usize;
    sorted.get(idx).copied().unwrap_or_default()
}
