//! Clients: each asks once, at its time, reads in its way, and records how it ended.

use crate::plan::pick;
use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use pd_net::TcpStream;
use rand::RngExt;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// One request, and how its client behaves.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) nr: usize,
    pub(crate) at: Duration,
    pub(crate) prompt: Vec<u64>,
    pub(crate) tokens: usize,
    /// What the answer must be.
    pub(crate) expected: Vec<u64>,
    pub(crate) streams: bool,
    /// Between two pieces of the answer that it reads.
    pub(crate) read_pause: Duration,
    /// It leaves after so long.
    pub(crate) leaves_after: Option<Duration>,
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Outcome {
    Tokens(Vec<u64>),
    Refused(u16, String),
    /// Within a stream that had begun.
    Failed(String),
    /// The connection broke.
    Broken(String),
    /// The client went away.
    Left,
    /// Nothing came for longer than anything may take.
    Hung,
}

/// The first request comes no sooner.
const ASKS_FROM: Duration = Duration::from_millis(500);
const LEAVES_WITHIN_MS: [u64; 3] = [300, 1500, 5000];

/// How each request ended, and when.
pub(crate) type Answers = Arc<Mutex<Vec<(usize, Duration, Outcome)>>>;

// === impl Ask ===

impl Ask {
    /// A request for an answer to one of `prompts`, which come with their tokens.
    pub(crate) fn draw(
        nr: usize,
        rng: &mut StdRng,
        within: Duration,
        prompts: &[(Vec<u64>, Vec<u64>)],
        leaving: f64,
    ) -> Self {
        let last = ASKS_FROM + within;
        let (prompt, answer) = pick(rng, prompts);
        let tokens = rng.random_range(1..=answer.len());
        Self {
            nr,
            prompt: prompt.clone(),
            tokens,
            expected: answer[..tokens].to_vec(),
            at: rng.random_range(ASKS_FROM..last),
            streams: rng.random_bool(0.7),
            read_pause: Duration::from_millis(if rng.random_bool(0.1) { 200 } else { 0 }),
            leaves_after: rng.random_bool(leaving).then(|| {
                let most = *pick(rng, &LEAVES_WITHIN_MS);
                Duration::from_millis(rng.random_range(1..most))
            }),
        }
    }

    /// The same from a client that neither dawdles nor leaves.
    pub(crate) fn at_ease(self) -> Self {
        Self {
            read_pause: Duration::ZERO,
            leaves_after: None,
            ..self
        }
    }
}

/// Asks everything of `router`; a request that takes longer than `limit` hangs.
pub(crate) async fn run(router: (IpAddr, u16), asks: Vec<Ask>, limit: Duration, answers: Answers) {
    let began = Instant::now();
    let asking = asks.into_iter().map(|ask| {
        let answers = Arc::clone(&answers);
        async move {
            sleep(ask.at.saturating_sub(began.elapsed())).await;
            let outcome = ended(router, &ask, limit).await;
            answers.lock().push((ask.nr, began.elapsed(), outcome));
        }
    });
    join_all(asking).await;
}

/// Asks the first of `asks` that has no answer.
pub(crate) async fn run_next(
    router: (IpAddr, u16),
    asks: Vec<Ask>,
    limit: Duration,
    answers: Answers,
) {
    let began = Instant::now();
    let next = answers.lock().len();
    if let Some(ask) = asks.get(next) {
        let outcome = ended(router, ask, limit).await;
        answers.lock().push((ask.nr, began.elapsed(), outcome));
    }
}

async fn ended(router: (IpAddr, u16), ask: &Ask, limit: Duration) -> Outcome {
    let patience = ask.leaves_after.unwrap_or(limit);
    match timeout(patience, asked(router, ask)).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(error)) => Outcome::Broken(error),
        Err(_) if ask.leaves_after.is_some() => Outcome::Left,
        Err(_) => Outcome::Hung,
    }
}

async fn asked(router: (IpAddr, u16), ask: &Ask) -> Result<Outcome, String> {
    let broke = |error: &dyn std::error::Error| error.to_string();
    let stream = TcpStream::connect(router).await.map_err(|e| broke(&e))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|e| broke(&e))?;
    let connection = tokio::spawn(connection);
    let body = json!({
        "input_ids": ask.prompt,
        "stream": ask.streams,
        "sampling_params": {"max_new_tokens": ask.tokens, "temperature": 0, "ignore_eos": true},
    });
    let request = Request::post("/generate")
        .header("host", "router")
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body.to_string())))
        .expect("a request");
    let answer = sender.send_request(request).await.map_err(|e| broke(&e))?;
    let status = answer.status();
    let mut body = answer.into_body();
    let mut text = Vec::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.map_err(|e| broke(&e))?.into_data() {
            text.extend(data);
        }
        sleep(ask.read_pause).await;
    }
    drop(sender);
    connection.abort();
    Ok(read(status, ask.streams, &String::from_utf8_lossy(&text)))
}

fn read(status: StatusCode, streams: bool, text: &str) -> Outcome {
    let message = |text: &str| {
        let value: Option<Value> = serde_json::from_str(text).ok();
        let value = value.unwrap_or_default();
        value["error"]["message"].as_str().map(str::to_owned)
    };
    if status != StatusCode::OK {
        return Outcome::Refused(status.as_u16(), message(text).unwrap_or_default());
    }
    let ids = |value: &Value| -> Vec<u64> {
        let ids = value["output_ids"].as_array().into_iter().flatten();
        ids.filter_map(Value::as_u64).collect()
    };
    if !streams {
        return Outcome::Tokens(ids(&serde_json::from_str(text).unwrap_or_default()));
    }
    let mut tokens = Vec::new();
    for event in text.lines().filter_map(|line| line.strip_prefix("data: ")) {
        if event == "[DONE]" {
            return Outcome::Tokens(tokens);
        }
        if let Some(message) = message(event) {
            return Outcome::Failed(message);
        }
        tokens.extend(ids(&serde_json::from_str(event).unwrap_or_default()));
    }
    Outcome::Broken("the stream ended without [DONE]".to_owned())
}
