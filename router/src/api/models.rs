//! `/v1/models`: the models that ready workers serve.

use crate::clock;
use crate::error::ApiError;
use crate::router::Router;
use crate::workers::Fleet;
use axum::Json;
use axum::extract::{Path, State};
use http::HeaderMap;
use serde::Serialize;
use std::sync::{Arc, LazyLock};

/// When this process came up, as the `created` time of its models.
static CREATED: LazyLock<u64> = LazyLock::new(|| clock::unix_ns() / 1_000_000_000);

#[derive(Serialize)]
pub(super) struct ModelList {
    object: &'static str,
    data: Vec<Model>,
}

#[derive(Serialize)]
pub(super) struct Model {
    id: String,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
    root: String,
    parent: Option<String>,
    /// Tokens of a prompt and its answer that every ready worker takes; unknown if none says.
    max_model_len: Option<u32>,
}

pub(super) async fn list(
    State(router): State<Arc<Router>>,
    headers: HeaderMap,
) -> Result<Json<ModelList>, ApiError> {
    router.api_keys.check(&headers)?;
    let fleet = router.registry.fleet();
    Ok(Json(ModelList {
        object: "list",
        data: fleet
            .models()
            .into_iter()
            .map(|id| Model::new(id, &fleet))
            .collect(),
    }))
}

pub(super) async fn get(
    State(router): State<Arc<Router>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Model>, ApiError> {
    router.api_keys.check(&headers)?;
    let fleet = router.registry.fleet();
    if fleet.models().contains(id.as_str()) {
        return Ok(Json(Model::new(&id, &fleet)));
    }
    if fleet.knows(&id) {
        let message = format!("no worker of the model {id:?} is ready; retry later");
        return Err(ApiError::unavailable(message).code("no_worker"));
    }
    let message =
        format!("the model {id:?} is not served here; GET /v1/models lists those that are");
    Err(ApiError::unknown_model(message))
}

// === impl Model ===

impl Model {
    fn new(id: &str, fleet: &Fleet) -> Self {
        Self {
            root: id.to_owned(),
            parent: None,
            max_model_len: fleet.context_length(id),
            id: id.to_owned(),
            object: "model",
            created: *CREATED,
            owned_by: "pdserve",
        }
    }
}
