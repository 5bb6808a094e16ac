//! `/health`: the model is loaded and its engine runs. `/health_generate`: it also generates a
//! token, with faked KV on a worker of a pair. A cordon affects neither: new requests are then
//! refused where they arrive. While weights are replaced the worker is healthy, and requests wait.

use super::dialect::Dialect;
use super::error::ApiError;
use super::sampling::Sampling;
use super::token_stream::{Item, Part, TokenStream};
use crate::service::App;
use axum::extract::State;
use http::StatusCode;
use pd_engine::engine::LogprobOptions;
use pd_engine::sample::params::SamplingParams;
use pd_protocol::Role;
use pd_protocol::workers::BootstrapFields;
use pd_protocol::{BootstrapRoom, ports};
use std::sync::Arc;
use std::time::Duration;

/// Longer than that weights do not load: as long as the operator lets a worker start.
const REPLACED_WITHIN: Duration = Duration::from_secs(1800);

pub(crate) async fn health(State(app): State<Arc<App>>) -> Result<StatusCode, ApiError> {
    let alive = app.service()?.engine.health();
    if app.gate.is_closed() && app.weights.in_phase_for() < REPLACED_WITHIN {
        // Another engine takes the place of one that has ended.
        return Ok(StatusCode::OK);
    }
    alive.map_err(|stopped| ApiError::retriable(stopped.to_string()))?;
    Ok(StatusCode::OK)
}

pub(crate) async fn health_generate(State(app): State<Arc<App>>) -> Result<StatusCode, ApiError> {
    let service = app.enter().await?;
    let part = probe(app.role);
    let generation = TokenStream::start(&service, vec![part], Dialect::generate("text")).await?;
    generation.collect().await?;
    Ok(StatusCode::OK)
}

fn probe(role: Role) -> Part {
    let params = SamplingParams {
        max_new_tokens: Some(1),
        temperature: 0.0,
        ..SamplingParams::default()
    };
    let fake = BootstrapFields {
        bootstrap_host: ports::FAKE_BOOTSTRAP_HOST.to_owned(),
        bootstrap_port: ports::BOOTSTRAP,
        bootstrap_room: BootstrapRoom::from_random(rand::random(), 1),
    };
    let sampling = Sampling {
        params,
        default_max_new_tokens: None,
        stop_regex: Vec::new(),
        no_stop_trim: false,
    };
    Part {
        item: Arc::new(Item {
            rid: "health".to_owned(),
            input_ids: vec![0],
            sampling: Arc::new(sampling),
            logprobs: LogprobOptions::default(),
            grammar: None,
        }),
        bootstrap: (role != Role::Unified).then_some(fake),
        choice: 0,
    }
}
