//! The admin API, on its own port: cordon, drain, timelines. `/flush_cache`, which SGLang serves on
//! the HTTP API, is here too.

use super::error::ApiError;
use crate::service::{App, Wish};
use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use pd_engine::engine::ProfileError;
use pd_protocol::BootstrapRoom;
use pd_protocol::timeline::RequestTimeline;
use pd_protocol::trace_event::Trace;
use pd_protocol::workers::DrainStatus;
use std::sync::Arc;

pub(crate) async fn cordon(State(app): State<Arc<App>>) -> Result<Json<DrainStatus>, ApiError> {
    let service = app.set_wish(Wish::Cordon)?;
    Ok(Json(service.engine.drain_status()))
}

pub(crate) async fn uncordon(State(app): State<Arc<App>>) -> Result<Json<DrainStatus>, ApiError> {
    let service = app.set_wish(Wish::Serve)?;
    Ok(Json(service.engine.drain_status()))
}

/// Begins the drain. The process keeps serving its status until a signal ends it.
pub(crate) async fn drain(State(app): State<Arc<App>>) -> Result<Json<DrainStatus>, ApiError> {
    let service = app.set_wish(Wish::Drain)?;
    Ok(Json(service.engine.drain_status()))
}

pub(crate) async fn drain_status(
    State(app): State<Arc<App>>,
) -> Result<Json<DrainStatus>, ApiError> {
    Ok(Json(app.service()?.engine.drain_status()))
}

pub(crate) async fn timeline(
    State(app): State<Arc<App>>,
    room: Result<Path<u64>, PathRejection>,
) -> Result<Json<RequestTimeline>, ApiError> {
    let Path(room) = room.map_err(|_| {
        let message = "a room must be a whole number: GET /timeline/ROOM";
        ApiError::field("room", message)
    })?;
    let room = BootstrapRoom::new(room).map_err(|why| ApiError::field("room", why.to_string()))?;
    let timeline = app.service()?.engine.timeline(room);
    timeline.map(Json).ok_or_else(|| {
        let message = format!("room {room} is unknown here, or was forgotten");
        ApiError::new(StatusCode::NOT_FOUND, message)
    })
}

/// Begins to record the scheduler's turns and the device's steps.
pub(crate) async fn start_profile(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    let engine = &app.service()?.engine;
    engine.start_profile().map_err(conflict)?;
    Ok((StatusCode::OK, "recording; POST /stop_profile ends it\n").into_response())
}

/// Answers with what was recorded, in Chrome's Trace Event Format.
pub(crate) async fn stop_profile(State(app): State<Arc<App>>) -> Result<Json<Trace>, ApiError> {
    let engine = &app.service()?.engine;
    engine.stop_profile().map(Json).map_err(conflict)
}

fn conflict(why: ProfileError) -> ApiError {
    ApiError::new(StatusCode::CONFLICT, why.to_string())
}

pub(crate) async fn flush_cache(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    let stopped = |why: pd_engine::engine::EngineStopped| ApiError::retriable(why.to_string());
    let engine = &app.service()?.engine;
    if engine.flush_cache().await.map_err(stopped)? {
        return Ok((StatusCode::OK, "Cache flushed.\n").into_response());
    }
    let message = "requests are in flight, so the cache was not flushed; retry when none is";
    Err(ApiError::new(StatusCode::BAD_REQUEST, message).with_code("cache_in_use"))
}
