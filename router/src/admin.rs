//! The admin API on its own port: which workers the router uses, whether it sends them requests, and
//! what it remembers of a request. Served to who presents the token, or without a token to this machine only.

use crate::api::{method_not_allowed, not_found};
use crate::error::ApiError;
use crate::headers;
use crate::router::Router;
use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{ConnectInfo, Path, Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post};
use http::StatusCode;
use pd_protocol::BootstrapRoom;
use pd_protocol::labels::ENV_ADMIN_TOKEN;
use pd_protocol::timeline::RequestTimeline;
use pd_protocol::workers::{DispatchStatus, PauseRequest, WorkerList, WorkerSpec, WorkerStatus};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Of a pause: who asked for it may be gone.
const LEASE_MAX: Duration = Duration::from_secs(3600);

/// The admin API of `router`. Its callers' addresses must be given as [`ConnectInfo`].
pub(crate) fn routes(router: Arc<Router>) -> axum::Router {
    axum::Router::new()
        .route("/workers", get(list).post(add))
        .route("/workers/{id}", get(status).delete(remove))
        .route("/workers/{id}/cordon", post(cordon))
        .route("/workers/{id}/uncordon", post(uncordon))
        .route("/pause", post(pause))
        .route("/resume", post(resume))
        .route("/timeline/{room}", get(timeline))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::from_fn_with_state(Arc::clone(&router), admit))
        .with_state(router)
}

async fn admit(
    State(router): State<Arc<Router>>,
    ConnectInfo(caller): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    match &router.admin_token {
        Some(token) => {
            let presented = headers::bearer_token(request.headers());
            if !presented.is_some_and(|presented| token.matches(presented)) {
                return Err(ApiError::unauthorized());
            }
        }
        None if caller.ip().to_canonical().is_loopback() => {}
        None => {
            let message = format!(
                "without a token in {ENV_ADMIN_TOKEN} the admin API serves callers on this machine only"
            );
            return Err(ApiError::invalid(StatusCode::FORBIDDEN, message));
        }
    }
    Ok(next.run(request).await)
}

async fn list(State(router): State<Arc<Router>>) -> Json<WorkerList> {
    Json(WorkerList {
        workers: router.workers(),
        dispatch: router.dispatch_status(),
    })
}

async fn add(
    State(router): State<Arc<Router>>,
    spec: Result<Json<WorkerSpec>, JsonRejection>,
) -> Result<Json<WorkerStatus>, ApiError> {
    let Json(spec) = spec.map_err(|error| ApiError::invalid(error.status(), error.body_text()))?;
    Ok(Json(router.add_worker(spec)?))
}

async fn status(
    State(router): State<Arc<Router>>,
    Path(id): Path<String>,
) -> Result<Json<WorkerStatus>, ApiError> {
    Ok(Json(router.worker(&id)?))
}

async fn remove(
    State(router): State<Arc<Router>>,
    Path(id): Path<String>,
) -> Result<Json<WorkerStatus>, ApiError> {
    Ok(Json(router.remove_worker(&id)?))
}

async fn cordon(
    State(router): State<Arc<Router>>,
    Path(id): Path<String>,
) -> Result<Json<WorkerStatus>, ApiError> {
    Ok(Json(router.set_cordoned(&id, true)?))
}

async fn uncordon(
    State(router): State<Arc<Router>>,
    Path(id): Path<String>,
) -> Result<Json<WorkerStatus>, ApiError> {
    Ok(Json(router.set_cordoned(&id, false)?))
}

async fn pause(
    State(router): State<Arc<Router>>,
    asked: Result<Json<PauseRequest>, JsonRejection>,
) -> Result<Json<DispatchStatus>, ApiError> {
    let Json(asked) = asked.map_err(|why| ApiError::invalid(why.status(), why.body_text()))?;
    let lasts = Duration::from_secs(asked.lease_secs.into());
    if lasts > LEASE_MAX {
        let secs = asked.lease_secs;
        let message = format!("lease_secs is {secs}; give 3600 at most, and ask again in time");
        return Err(ApiError::invalid(StatusCode::BAD_REQUEST, message));
    }
    Ok(Json(router.pause(lasts)))
}

async fn resume(State(router): State<Arc<Router>>) -> Json<DispatchStatus> {
    Json(router.resume())
}

async fn timeline(
    State(router): State<Arc<Router>>,
    Path(room): Path<String>,
) -> Result<Json<RequestTimeline>, ApiError> {
    let room = room
        .parse()
        .map_err(|_| format!("{room:?} is not a number"))
        .and_then(|room| BootstrapRoom::new(room).map_err(|error| error.to_string()))
        .map_err(|reason| ApiError::invalid(StatusCode::BAD_REQUEST, reason))?;
    router.timeline.get(room).map(Json).ok_or_else(|| {
        let message = format!("room {room} is not among the latest requests of this router");
        ApiError::invalid(StatusCode::NOT_FOUND, message)
    })
}
