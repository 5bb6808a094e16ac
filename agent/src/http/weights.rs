//! `/update_weights_from_disk` and `/weights` of the admin API: other weights of the same network, without a restart.

use super::error::ApiError;
use crate::service::App;
use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use pd_protocol::weights::{STATUS_PATH, WeightsStatus, WeightsUpdate, WeightsUpdated};
use std::sync::Arc;
use std::time::Duration;

pub(crate) async fn status(State(app): State<Arc<App>>) -> Result<Json<WeightsStatus>, ApiError> {
    app.weights.status(app.gate.waiting()).map(Json)
}

/// Answers when the weights serve, or at once if so asked.
pub(crate) async fn update(State(app): State<Arc<App>>, body: Bytes) -> Result<Response, ApiError> {
    // SGLang's clients do not always send a content type.
    let update: WeightsUpdate = serde_json::from_slice(&body)
        .map_err(|why| ApiError::new(StatusCode::BAD_REQUEST, format!("the body: {why}")))?;
    check(&update)?;
    let only_prepared = update.prepare_only == Some(true);
    let is_async = update.is_async == Some(true);
    let path = update.model_path.clone();
    let coming = app.weights.ask(update)?;
    if is_async {
        let message = format!("{path} is being read; GET {STATUS_PATH} says what becomes of it");
        return Ok((StatusCode::ACCEPTED, Json(updated(true, message, 0))).into_response());
    }
    let (status, updated) = match coming.arrival().await? {
        Ok(waited) => {
            let message = if only_prepared {
                format!("{path} can take the place of the weights that serve")
            } else {
                format!("the weights of {path} serve")
            };
            (StatusCode::OK, updated(true, message, waited))
        }
        Err(reason) => (StatusCode::BAD_REQUEST, updated(false, reason, 0)),
    };
    Ok((status, Json(updated)).into_response())
}

fn updated(success: bool, message: String, num_paused_requests: u64) -> WeightsUpdated {
    WeightsUpdated {
        success,
        message,
        num_paused_requests,
    }
}

/// # Errors
/// 400 for a field whose effect is not offered.
fn check(update: &WeightsUpdate) -> Result<(), ApiError> {
    let WeightsUpdate {
        model_path,
        weight_version: _,
        abort_all_requests: _,
        drain_timeout_secs,
        prepare_only: _,
        load_format,
        flush_cache,
        is_async: _,
        torch_empty_cache: _,
        keep_pause,
        recapture_cuda_graph: _,
    } = update;
    if model_path.is_empty() {
        let message = "`model_path` is empty; give a model folder or a .gguf file";
        return Err(ApiError::field("model_path", message));
    }
    if let Some(seconds) = drain_timeout_secs
        && Duration::try_from_secs_f64(*seconds).is_err()
    {
        let message = format!("`drain_timeout_secs` is {seconds}; give seconds from 0 on");
        return Err(ApiError::field("drain_timeout_secs", message));
    }
    if let Some(format) = load_format
        && !["auto", "safetensors", "gguf"].contains(&format.as_str())
    {
        let remedy = "give auto, safetensors or gguf, or leave it out";
        return Err(ApiError::unsupported("load_format", remedy));
    }
    let refused = [
        (
            "flush_cache",
            *flush_cache == Some(false),
            "KV of other weights means nothing to the new ones, so it is flushed; leave it out",
        ),
        (
            "keep_pause",
            *keep_pause == Some(true),
            "waiting requests go on with the new weights; leave it out",
        ),
    ];
    match refused.into_iter().find(|(_, is_asked, _)| *is_asked) {
        Some((field, _, remedy)) => Err(ApiError::unsupported(field, remedy)),
        None => Ok(()),
    }
}
