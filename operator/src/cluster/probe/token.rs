//! One token over a pair, asked for as a router would.

use super::{Worker, kv_bytes};
use crate::http_client::{CallError, HttpClient};
use futures::future::try_join;
use http::{Method, StatusCode};
use pd_protocol::BootstrapRoom;
use serde_json::{Value, json};
use std::net::IpAddr;
use std::time::Duration;

/// A busy worker answers when it is a probe's turn.
const LIMIT: Duration = Duration::from_secs(30);
/// Tokens of the probe's prompt. Every vocabulary has a token 0.
const PROMPT_LEN: usize = 8;
/// How long figures may lag behind an answer, and how often they are asked for.
const FIGURES_LIMIT: Duration = Duration::from_secs(10);
const FIGURES_PAUSE: Duration = Duration::from_millis(250);

#[derive(Debug, thiserror::Error)]
pub(super) enum TokenError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("prefill's answer has no kv_transfer_params")]
    NoTransferParams,
    #[error("decode does not say how many bytes it has fetched")]
    NoFigures,
    #[error("decode answered, and has fetched no KV")]
    NothingFetched,
}

// === impl TokenError ===

impl TokenError {
    pub(super) fn asks_for_key(&self) -> bool {
        matches!(self, Self::Call(CallError::Status { status, .. }) if *status == StatusCode::UNAUTHORIZED)
    }
}

pub(super) async fn send(
    client: &HttpClient,
    prefill: &Worker,
    decode: &Worker,
) -> Result<(), TokenError> {
    let Some(port) = prefill.bootstrap_port else {
        return fetch(client, prefill, decode, FIGURES_LIMIT).await;
    };
    let room = BootstrapRoom::from_random(rand::random(), 1);
    let body = in_a_room(prefill.ip, port, room);
    let ask = |worker| ask(client, worker, "/generate", &body);
    try_join(ask(prefill), ask(decode)).await?;
    Ok(())
}

/// Over a pair of vLLM's, whose decode could compute the prompt itself: only its own count of bytes is proof.
pub(super) async fn fetch(
    client: &HttpClient,
    prefill: &Worker,
    decode: &Worker,
    figures_limit: Duration,
) -> Result<(), TokenError> {
    let before = kv_bytes(client, decode).await;
    let before = before.ok_or(TokenError::NoFigures)?;
    let kept = json!({"do_remote_decode": true, "do_remote_prefill": false});
    let answer = ask(client, prefill, "/v1/completions", &with_params(&kept)).await?;
    let params = &answer["kv_transfer_params"];
    if !params.is_object() {
        return Err(TokenError::NoTransferParams);
    }
    ask(client, decode, "/v1/completions", &with_params(params)).await?;
    let has_fetched = async {
        while kv_bytes(client, decode)
            .await
            .is_none_or(|now| now <= before)
        {
            tokio::time::sleep(FIGURES_PAUSE).await;
        }
    };
    let fetched = tokio::time::timeout(figures_limit, has_fetched).await;
    fetched.map_err(|_| TokenError::NothingFetched)
}

async fn ask(
    client: &HttpClient,
    worker: &Worker,
    path: &str,
    body: &Value,
) -> Result<Value, CallError> {
    let url = format!("{}{path}", worker.url);
    let body = Some(body.to_string().into_bytes());
    client.call(Method::POST, &url, body, LIMIT).await
}

pub(super) fn in_a_room(host: IpAddr, port: u16, room: BootstrapRoom) -> Value {
    json!({
        "input_ids": vec![0; PROMPT_LEN],
        "sampling_params": {"max_new_tokens": 1, "temperature": 0, "ignore_eos": true},
        "bootstrap_host": host,
        "bootstrap_port": port,
        "bootstrap_room": room,
    })
}

fn with_params(params: &Value) -> Value {
    json!({
        "prompt": vec![0; PROMPT_LEN],
        "max_tokens": 1,
        "temperature": 0,
        "kv_transfer_params": params,
    })
}
