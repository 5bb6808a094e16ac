//! Clients in a closed loop, each on kept connections: to the router, or to a prefill and a decode
//! worker, both of which they then ask at once.

use crate::Case;
use crate::target::Via;
use crate::worker;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

pub(crate) struct Load {
    via: Via,
    path: &'static str,
    clients: usize,
    body: Bytes,
    stream: bool,
}

/// One entry per request, sorted.
#[derive(Default)]
pub(crate) struct Measured {
    pub(crate) total_us: Vec<u128>,
    pub(crate) first_us: Vec<u128>,
}

/// One kept connection.
struct Connection {
    sender: SendRequest<Full<Bytes>>,
    path: &'static str,
    body: Bytes,
    answer_len_min: usize,
}

// === impl Load ===

impl Load {
    pub(crate) fn new(via: &Via, case: &Case) -> Self {
        let stream = case.stream;
        let prompt = "x".repeat(case.prompt_bytes);
        let body = match case.path {
            "/generate" => format!(
                r#"{{"stream":{stream},"text":"{prompt}","sampling_params":{{"max_new_tokens":32}}}}"#
            ),
            _ => format!(
                r#"{{"model":"m","stream":{stream},"max_tokens":32,"messages":[{{"role":"user","content":"{prompt}"}}]}}"#
            ),
        };
        Self {
            via: via.clone(),
            path: case.path,
            clients: case.clients,
            body: body.into(),
            stream,
        }
    }

    pub(crate) async fn run(&self, duration: Duration) -> Measured {
        let end = Instant::now() + duration;
        let mut clients = Vec::new();
        for client_idx in 0..self.clients {
            let answer_len_min = worker::ANSWER_BYTES + usize::from(self.stream);
            let asked = self
                .connect(self.via.asked(client_idx), answer_len_min)
                .await;
            let other = match self.via.other(client_idx) {
                Some(addr) => Some(self.connect(addr, worker::ANSWER_BYTES).await),
                None => None,
            };
            clients.push(tokio::spawn(client(asked, other, end)));
        }
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

    async fn connect(&self, addr: SocketAddr, answer_len_min: usize) -> Connection {
        let stream = TcpStream::connect(addr).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Connection {
            sender,
            path: self.path,
            body: self.body.clone(),
            answer_len_min,
        }
    }
}

async fn client(mut asked: Connection, mut other: Option<Connection>, end: Instant) -> Measured {
    let mut measured = Measured::default();
    while Instant::now() < end {
        let sent = Instant::now();
        let first = match &mut other {
            Some(other) => tokio::join!(asked.exchange(), other.exchange()).0,
            None => asked.exchange().await,
        };
        measured.total_us.push(sent.elapsed().as_micros());
        measured.first_us.push((first - sent).as_micros());
    }
    measured
}

// === impl Connection ===

impl Connection {
    /// One request and its answer; when the first byte of its body came.
    async fn exchange(&mut self) -> Instant {
        let request = Request::post(self.path)
            .header("host", "router")
            .header("content-type", "application/json")
            .body(Full::new(self.body.clone()))
            .unwrap();
        self.sender.ready().await.unwrap();
        let response = self.sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), 200);
        let mut body = response.into_body();
        let mut first = None;
        let mut read_len = 0;
        while let Some(frame) = body.frame().await {
            read_len += frame.unwrap().into_data().unwrap().len();
            first.get_or_insert_with(Instant::now);
        }
        assert!(
            read_len >= self.answer_len_min,
            "{read_len} bytes are not the answer"
        );
        first.expect("every answer has a body")
    }
}
