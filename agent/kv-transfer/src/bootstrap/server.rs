//! `BootstrapServer`: HTTP beside prefill. `PUT /route` registers a rank, `GET /route` answers
//! the parallel layout or one rank's address, `GET /health` says that prefill is there. Boot id
//! and KV compatibility are response headers, because the JSON is SGLang's.

use super::table::{LookupError, RouteTable};
use crate::clock::Instant;
use crate::net::{self, TcpListener};
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Query, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use parking_lot::Mutex;
use pd_http::{ClientPeer, Limits, connections_for, serve_peers};
use pd_identity::{Clients, Peers};
use pd_protocol::bootstrap::{
    DpRanks, QueryDpRanks, RegisterDpRank, RouteQuery, RouteRegistration, RouteTarget,
};
use pd_protocol::labels::{HEADER_BOOT_ID, HEADER_KV_COMPAT};
use std::sync::Arc;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Largest request body: 65,536 rooms of 20 digits fit.
const BODY_BYTES_MAX: usize = 2 << 20;

/// Connections at once; decode ranks ask once for each prefill.
const CONNECTIONS_MAX: usize = 4096;

/// A running server; it stops when dropped.
#[derive(Debug)]
pub struct BootstrapServer {
    local_addr: std::net::SocketAddr,
    task: tokio::task::JoinHandle<()>,
    _end: DropGuard,
}

/// A body that was read whole, or why not.
type Body = Result<Bytes, BytesRejection>;

#[derive(Clone)]
struct Bootstrap {
    table: Arc<Mutex<RouteTable>>,
    identity: HeaderMap,
}

// === impl BootstrapServer ===

impl BootstrapServer {
    /// Serves `peers` on `listener`, within the caller's runtime.
    ///
    /// # Errors
    /// The listener has no address, or cannot be made non-blocking.
    pub fn start(
        listener: std::net::TcpListener,
        peers: &Peers,
        boot_id: &str,
        kv_compat: &str,
    ) -> std::io::Result<Self> {
        Self::start_beside(listener, peers, (boot_id, kv_compat), Router::new())
    }

    /// As [`Self::start`], with `routes` on the same port; bodies are bounded alike.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_beside(
        listener: std::net::TcpListener,
        peers: &Peers,
        (boot_id, kv_compat): (&str, &str),
        routes: Router,
    ) -> std::io::Result<Self> {
        Self::serve(net::adopt(listener)?, peers, (boot_id, kv_compat), routes)
    }

    /// As [`Self::start_beside`], on a listener of the runtime.
    ///
    /// # Errors
    /// The listener has no address.
    pub fn serve(
        listener: TcpListener,
        peers: &Peers,
        (boot_id, kv_compat): (&str, &str),
        routes: Router,
    ) -> std::io::Result<Self> {
        let local_addr = listener.local_addr()?;
        let router = router(boot_id, kv_compat, routes);
        let limits = Limits {
            connections: connections_for(CONNECTIONS_MAX, 1),
            ..Limits::default()
        };
        let end = CancellationToken::new();
        let serving = serve_peers(
            listener,
            peers.clone(),
            Clients::Required,
            router,
            limits,
            end.clone(),
        );
        let task = tokio::spawn(serving);
        Ok(Self {
            local_addr,
            task,
            _end: end.drop_guard(),
        })
    }

    pub fn local_addr(&self) -> std::net::SocketAddr {
        self.local_addr
    }

    /// Waits until it serves no more, which it never does by itself; why.
    pub async fn ended(&mut self) -> String {
        match (&mut self.task).await {
            Ok(()) => "the bootstrap server ended".to_owned(),
            Err(panic) => format!("the bootstrap server's task ended: {panic}"),
        }
    }
}

fn router(boot_id: &str, kv_compat: &str, routes: Router) -> Router {
    let mut identity = HeaderMap::new();
    for (name, value) in [(HEADER_BOOT_ID, boot_id), (HEADER_KV_COMPAT, kv_compat)] {
        if let Ok(value) = HeaderValue::from_str(value) {
            identity.insert(HeaderName::from_static(name), value);
        }
    }
    let bootstrap = Bootstrap {
        table: Arc::new(Mutex::new(RouteTable::new(boot_id))),
        identity,
    };
    Router::new()
        .route("/health", get(|| async { "OK" }))
        .route("/route", get(find).put(register))
        .route("/register_dp_rank", post(register_dp_rank))
        .route("/query_dp_ranks", post(query_dp_ranks))
        .with_state(bootstrap)
        .merge(routes)
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
}

async fn register(
    State(bootstrap): State<Bootstrap>,
    Extension(ClientPeer(process)): Extension<ClientPeer>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let registration: RouteRegistration = match parse(body) {
        Ok(registration) => registration,
        Err(refusal) => return refusal.into_response(),
    };
    let boot_id = headers.get(HEADER_BOOT_ID).and_then(|v| v.to_str().ok());
    let registered = bootstrap
        .table
        .lock()
        .register(registration, boot_id, process);
    match registered {
        Ok(()) => "OK".into_response(),
        Err(error) => {
            tracing::warn!(%error, "refused the registration of a prefill rank");
            (StatusCode::BAD_REQUEST, error.to_string()).into_response()
        }
    }
}

async fn find(
    State(bootstrap): State<Bootstrap>,
    query: Result<Query<RouteQuery>, QueryRejection>,
) -> Response {
    let Ok(Query(query)) = query else {
        return (
            StatusCode::BAD_REQUEST,
            "Missing inputs for bootstrap server.",
        )
            .into_response();
    };
    let table = bootstrap.table.lock();
    let answer = match query.target() {
        Err(error) => (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
        Ok(RouteTarget::Topology) => reply(table.topology()),
        Ok(RouteTarget::Rank(rank)) => reply(table.rank(rank)),
    };
    (bootstrap.identity, answer).into_response()
}

fn reply<T: serde::Serialize>(found: Result<T, LookupError>) -> Response {
    match found {
        Ok(found) => Json(found).into_response(),
        Err(error @ LookupError::NotReady(_)) => {
            (StatusCode::SERVICE_UNAVAILABLE, error.to_string()).into_response()
        }
        Err(error @ LookupError::UnknownRank(_)) => {
            (StatusCode::NOT_FOUND, error.to_string()).into_response()
        }
    }
}

async fn register_dp_rank(State(bootstrap): State<Bootstrap>, body: Body) -> Response {
    let RegisterDpRank {
        bootstrap_room,
        dp_rank,
    } = match parse(body) {
        Ok(request) => request,
        Err(refusal) => return refusal.into_response(),
    };
    let mut table = bootstrap.table.lock();
    table.set_dp_rank(bootstrap_room, dp_rank, Instant::now());
    "OK".into_response()
}

async fn query_dp_ranks(State(bootstrap): State<Bootstrap>, body: Body) -> Response {
    let QueryDpRanks { bootstrap_rooms } = match parse(body) {
        Ok(request) => request,
        Err(refusal) => return refusal.into_response(),
    };
    let table = bootstrap.table.lock();
    let known: DpRanks = bootstrap_rooms
        .into_iter()
        .filter_map(|room| Some((room.to_string(), table.dp_rank(room)?)))
        .collect();
    Json(known).into_response()
}

async fn unknown_path(uri: Uri) -> (StatusCode, String) {
    let message = format!(
        "there is no {} here; this is a bootstrap server: /route, /health, /register_dp_rank, \
         /query_dp_ranks",
        uri.path()
    );
    (StatusCode::NOT_FOUND, message)
}

async fn wrong_method(method: Method, uri: Uri) -> (StatusCode, String) {
    let message = format!("{} does not take {method}", uri.path());
    (StatusCode::METHOD_NOT_ALLOWED, message)
}

/// The body as `T`, regardless of its content type; or 413 with the bound, or 400 with line,
/// column and field.
fn parse<T: serde::de::DeserializeOwned>(body: Body) -> Result<T, (StatusCode, String)> {
    let body = body.map_err(|refused| match refused.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            let message = format!("the body is larger than the {BODY_BYTES_MAX} bytes read here");
            (StatusCode::PAYLOAD_TOO_LARGE, message)
        }
        status => (status, refused.body_text()),
    })?;
    serde_json::from_slice(&body).map_err(|error| {
        let message = format!("the body is not what this route takes: {error}");
        (StatusCode::BAD_REQUEST, message)
    })
}

#[cfg(test)]
mod tests;
