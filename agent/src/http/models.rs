//! `/v1/models`: the one model of this worker.

use super::error::ApiError;
use crate::service::App;
use axum::Json;
use axum::extract::{Path, State};
use serde::Serialize;
use std::sync::Arc;

#[derive(Debug, Serialize)]
pub(crate) struct ModelList {
    object: &'static str,
    data: Vec<Model>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Model {
    id: String,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
    root: String,
    parent: Option<String>,
    max_model_len: u32,
}

pub(crate) async fn list(State(app): State<Arc<App>>) -> Result<Json<ModelList>, ApiError> {
    Ok(Json(ModelList {
        object: "list",
        data: vec![model(&app)?],
    }))
}

/// Names may contain slashes, so the rest of the path is the name.
pub(crate) async fn one(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
) -> Result<Json<Model>, ApiError> {
    let model = model(&app)?;
    if name.trim_start_matches('/') == model.id.trim_start_matches('/') {
        return Ok(Json(model));
    }
    Err(ApiError::unknown_model(&name, &model.id))
}

fn model(app: &App) -> Result<Model, ApiError> {
    let id = app.served_model_name.clone();
    Ok(Model {
        root: id.clone(),
        id,
        object: "model",
        created: app.started_unix_secs,
        owned_by: "pdserve",
        parent: None,
        max_model_len: app.service()?.engine.info().context_length,
    })
}
