//! Answers for one pod, at its address.

use super::table::Table;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use pd_crds::router::RouterSpec;
use pd_protocol::ports;
use serde::Serialize;
use serde_json::json;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// For whom is answered.
#[derive(Clone)]
struct Pod {
    table: Arc<Table>,
    address: Ipv4Addr,
}

/// Serves until the tasks are dropped.
pub(super) fn start(table: &Arc<Table>, address: Ipv4Addr) -> JoinSet<()> {
    let routes = Router::new()
        .route("/metrics", get(metrics))
        .route("/generate", post(generate))
        .route("/workers", get(workers))
        .route("/drain", get(drain).post(begin_drain))
        .with_state(Pod {
            table: Arc::clone(table),
            address,
        });
    let mut tasks = JoinSet::new();
    for port in ports() {
        let (address, routes) = (SocketAddrV4::new(address, port), routes.clone());
        tasks.spawn(async move {
            match TcpListener::bind(address).await {
                Ok(listener) => axum::serve(listener, routes)
                    .await
                    .expect("axum's serve does not end"),
                // Requests are refused, and the proof shows it.
                Err(error) => eprintln!("a hollow pod cannot listen on {address}: {error}"),
            }
        });
    }
    tasks
}

/// A router's and an agent's.
fn ports() -> [u16; 3] {
    let router = RouterSpec::default().port;
    let router = u16::try_from(router).expect("the default is a port");
    [ports::HTTP, ports::ADMIN, router]
}

fn answer<T: Serialize>(value: Option<T>) -> Response {
    match value {
        Some(value) => Json(value).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn metrics(State(Pod { table, address }): State<Pod>) -> Response {
    table.scrapes.fetch_add(1, Ordering::Relaxed);
    match table.metrics(address) {
        Some(text) => text.into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn generate() -> Response {
    answer(Some(json!({"text": ""})))
}

async fn workers(State(Pod { table, address }): State<Pod>) -> Response {
    answer(table.workers(address))
}

async fn drain(State(Pod { table, address }): State<Pod>) -> Response {
    answer(table.drain(address, false))
}

async fn begin_drain(State(Pod { table, address }): State<Pod>) -> Response {
    answer(table.drain(address, true))
}
