//! An attempt on a pair of vLLM's, whose legs run one after the other: prefill computes the prompt and one token, and answers
//! with `kv_transfer_params`; these go as they came into the client's own bytes to decode, which fetches the KV by them. A
//! prefill whose decode never asks keeps its blocks until their lease ends (`kv_lease_duration`, 30 s). Asked for the prompt's
//! log probabilities, decode computes the prompt itself, so none are to be merged into its answer.
//!
//! Source: vLLM 0.32, `distributed/kv_transfer/kv_connector/v1/nixl`.

use super::attempt::{Workers, leg_start};
use super::failure::{LegFailure, LegFault};
use super::leg;
use super::response::{DecodeResponse, PairResponse};
use crate::client::ClientError;
use crate::request::ClientRequest;
use crate::route::PrefillDecodePair;
use crate::router::Router;
use crate::splice::Field;
use bytes::Bytes;
use pd_protocol::Role;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::sync::Arc;

/// What prefill is asked otherwise than the client has: one token, at once, with the KV kept for decode.
const OF_PREFILL: [(Field, &str); 7] = [
    (Field::MaxTokens, "1"),
    (Field::MaxCompletionTokens, "1"),
    (Field::MinTokens, "0"),
    (Field::N, "1"),
    (Field::Stream, "false"),
    (Field::StreamOptions, "null"),
    (
        Field::KvTransferParams,
        r#"{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}"#,
    ),
];

/// Prefill's answer, as far as it is read here.
#[derive(Deserialize)]
struct PrefillAnswer<'a> {
    #[serde(borrow, default)]
    kv_transfer_params: Option<&'a RawValue>,
}

pub(super) async fn start(
    router: &Arc<Router>,
    request: &ClientRequest,
    pair: PrefillDecodePair,
) -> Result<Box<DecodeResponse>, LegFailure> {
    let workers = Workers::of(&pair);
    let started = tokio::select! {
        started = one_by_one(router, request, pair) => started,
        role = workers.silent() => Err((role, ClientError::Silent.into())),
    };
    match started {
        Ok(mut response) => {
            response.pair = Some(PairResponse {
                prefill: workers.prefill,
                prefill_leg: None,
                rooms: None,
                logprobs: None,
            });
            Ok(response)
        }
        Err((role, fault)) => Err(workers.failure(role, fault)),
    }
}

async fn one_by_one(
    router: &Arc<Router>,
    request: &ClientRequest,
    pair: PrefillDecodePair,
) -> Result<Box<DecodeResponse>, (Role, LegFault)> {
    let points = &request.routing.splice_points;
    let body = points.overwrite(&request.body, &OF_PREFILL);
    let prefill = leg_start(router, request, pair.prefill, body);
    let answer = leg::prefill(prefill, true).await;
    let answer = answer.map_err(|fault| (Role::Prefill, fault))?;
    let params = transfer_params(&answer).ok_or((Role::Prefill, LegFault::NoTransferParams))?;
    let body = points.overwrite(&request.body, &[(Field::KvTransferParams, params)]);
    let decode = leg_start(router, request, pair.decode, body);
    let response = leg::decode(decode, Role::Decode).await;
    response.map_err(|fault| (Role::Decode, fault))
}

fn transfer_params(answer: &Bytes) -> Option<&str> {
    let answer: PrefillAnswer<'_> = serde_json::from_slice(answer).ok()?;
    let params = answer.kv_transfer_params?.get();
    params.starts_with('{').then_some(params)
}
