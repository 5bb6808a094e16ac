//! Prefill's side of a probe: sends its pages to the requested room.

use super::args::KvProbeArgs;
use super::clock::Reading;
use super::node::{Node, draw_boot_id};
use super::pool::Pool;
use super::wire::{KV_COMPAT, Offer, PATH, SendRequest, Sent};
use crate::drain::EndSignals;
use crate::listeners::bind;
use crate::wiring::own_address::own_address;
use crate::wiring::transfer_config;
use anyhow::{Context, Result};
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Json, Router, routing::get};
use http::StatusCode;
use parking_lot::Mutex;
use pd_identity::Peers;
use pd_kv_transfer::{
    BootstrapAddr, BootstrapServer, FailureReason, KvSender, LastChunk, MetadataIndexAllocator,
    SenderRequest,
};
use pd_protocol::Role;
use pd_protocol::{KvPoll, MetadataRow};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// Concurrent rooms, each with a metadata row; more are refused.
const ROOMS_MAX: u32 = 64;

struct Prefill {
    node: Node,
    rows: Mutex<MetadataIndexAllocator>,
}

/// A metadata row, held until its room can no longer be read from.
struct Row<'a> {
    index: u32,
    rows: &'a Mutex<MetadataIndexAllocator>,
}

/// Why no pages were sent, or they did not arrive.
#[derive(Debug, thiserror::Error)]
enum SendError {
    #[error("{ROOMS_MAX} rooms are already open; retry later")]
    Busy,
    #[error("page {page} is beyond the pool of {pages} pages")]
    Page { page: u32, pages: u32 },
    #[error(transparent)]
    Room(#[from] pd_kv_transfer::OpenError),
    #[error("room {room} failed: {reason}")]
    Failed { room: u64, reason: FailureReason },
    #[error("bug in the probe: {0}")]
    Internal(String),
}

/// Serves until a signal ends it.
///
/// # Errors
/// A port is taken, or the manager does not start.
pub(super) async fn serve(args: &KvProbeArgs, peers: &Peers) -> Result<()> {
    let mut signals = EndSignals::listen()?;
    let host = args.host.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let port = args.transfer.bootstrap_port;
    let listener = bind(host, port, "--disaggregation-bootstrap-port").await?;
    let listened = listener.local_addr()?;
    let host = own_address(host)?;
    let addr = BootstrapAddr {
        host: host.to_string(),
        port: listened.port(),
    };
    let pool = Pool::allocate(args.pages(), ROOMS_MAX)?;
    pool.fill()?;
    let boot_id = draw_boot_id();
    let transfer = transfer_config::build(&args.transfer, host, peers);
    let node = Node::start(Role::Prefill, pool, &boot_id, Some(addr.clone()), transfer)?;
    let prefill = Arc::new(Prefill {
        node,
        rows: Mutex::new(MetadataIndexAllocator::new(ROOMS_MAX)),
    });
    let routes = Router::new()
        .route(PATH, get(offer).post(send))
        .with_state(prefill);
    let listener = listener.into_std()?;
    let server = BootstrapServer::start_beside(listener, peers, (&boot_id, KV_COMPAT), routes);
    let _server = server.context("cannot serve the bootstrap table")?;
    let ready = format!("kv-probe on {listened}; now run: pd-agent kv-probe --peer {addr}\n");
    std::io::stdout().write_all(ready.as_bytes())?;
    signals.next().await;
    Ok(())
}

async fn offer(State(prefill): State<Arc<Prefill>>) -> Json<Offer> {
    Json(Offer {
        pages: prefill.node.pool.pages(),
    })
}

async fn send(State(prefill): State<Arc<Prefill>>, body: Bytes) -> Response {
    let request = match serde_json::from_slice(&body) {
        Ok(request) => request,
        Err(error) => return (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    };
    // A separate task, because a row stays in use until its room is released, even if the peer
    // hangs up.
    let sent = tokio::spawn(async move { prefill.send(request).await });
    let sent = sent
        .await
        .unwrap_or_else(|panicked| Err(SendError::Internal(panicked.to_string())));
    match sent {
        Ok(sent) => Json(sent).into_response(),
        Err(error) => {
            tracing::warn!(%error, "could not send pages");
            (error.status(), error.to_string()).into_response()
        }
    }
}

// === impl Prefill ===

impl Prefill {
    async fn send(&self, request: SendRequest) -> Result<Sent, SendError> {
        let SendRequest {
            bootstrap_room: room,
            page_indices,
        } = request;
        let pages = self.node.pool.pages();
        if let Some(&page) = page_indices.iter().find(|&&page| page >= pages) {
            return Err(SendError::Page { page, pages });
        }
        let row = Row::take(&self.rows)?;
        let metadata = &self.node.pool.kv.metadata;
        metadata
            .write_row(row.index, &MetadataRow::new(room, 0))
            .map_err(|error| SendError::Internal(error.to_string()))?;
        let sender = self
            .node
            .manager
            .sender(SenderRequest { room, fake: false })?;
        let node = &self.node;
        node.until(|| sender.poll() != KvPoll::Bootstrapping).await;
        sender.init(page_indices.len(), row.index);
        let started = Reading::now();
        sender.send(&page_indices, Some(LastChunk::default()));
        node.until(|| sender.poll().is_terminal()).await;
        let span = started.until_now();
        node.until(|| sender.released()).await;
        succeeded(&sender).map(|()| Sent(span))
    }
}

fn succeeded(sender: &KvSender) -> Result<(), SendError> {
    match sender.failure_reason() {
        None => Ok(()),
        Some(reason) => Err(SendError::Failed {
            room: sender.room().get(),
            reason,
        }),
    }
}

// === impl Row ===

impl<'a> Row<'a> {
    fn take(rows: &'a Mutex<MetadataIndexAllocator>) -> Result<Self, SendError> {
        let index = rows.lock().alloc().ok_or(SendError::Busy)?;
        Ok(Self { index, rows })
    }
}

impl Drop for Row<'_> {
    fn drop(&mut self) {
        self.rows.lock().free(self.index);
    }
}

// === impl SendError ===

impl SendError {
    fn status(&self) -> StatusCode {
        match self {
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Self::Page { .. } => StatusCode::BAD_REQUEST,
            Self::Room(_) => StatusCode::CONFLICT,
            Self::Failed { .. } => StatusCode::BAD_GATEWAY,
            Self::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}
