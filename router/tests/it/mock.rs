//! A worker that answers as a test says, remembers what it was asked, and knows when its
//! caller has gone.

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use http::{HeaderMap, StatusCode, Uri};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use pd_http::{Limits, ListenerMetrics, serve_peers};
use pd_identity::{Clients, Peers};
use pd_protocol::Role;
use pd_protocol::workers::WorkerSpec;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

static STARTED: AtomicUsize = AtomicUsize::new(0);

/// How a mock answers a request.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Json(String),
    /// The same, on a connection that takes no further request.
    JsonThenClose(String),
    Status(u16, String),
    /// The same, when the test says so.
    StatusWhenReleased(u16, String),
    /// A stream of these pieces, then its end.
    Events(Vec<String>),
    /// A stream of these pieces, then nothing more.
    EventsThenHang(Vec<String>),
    /// A stream of these pieces, then, when the test says so, a broken connection.
    EventsThenBreak(Vec<String>),
    /// No answer.
    Hang,
}

#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) asked: usize,
    /// Requests whose caller still waits.
    pub(crate) live: usize,
}

pub(crate) struct Mock {
    pub(crate) addr: SocketAddr,
    /// Later mocks have larger numbers, so pools list them in the order of their start.
    number: usize,
    role: Role,
    scheme: &'static str,
    state: Arc<MockState>,
    end: CancellationToken,
    server: JoinHandle<()>,
}

struct MockState {
    answers: Mutex<Vec<Answer>>,
    info: Mutex<Value>,
    /// The one path at which it says what it is.
    info_path: Mutex<&'static str>,
    healthy: Mutex<bool>,
    /// What it says at `/v1/models` beside that.
    models: Mutex<Option<Value>>,
    /// Whether it answers `/ping`; if not, it has no such path.
    pings: Mutex<bool>,
    asked: Mutex<Vec<Asked>>,
    counts: watch::Sender<Counts>,
    released: Notify,
    /// Its process stands still: nothing is answered.
    frozen: Mutex<bool>,
}

/// A request that is being answered.
struct Live(Arc<MockState>);

// === impl Mock ===

impl Mock {
    pub(crate) async fn start(role: Role) -> Self {
        Self::start_at(role, "127.0.0.1:0".parse().unwrap()).await
    }

    pub(crate) async fn start_at(role: Role, addr: SocketAddr) -> Self {
        Self::start_among(Peers::Plain, role, addr).await
    }

    /// One that serves peers only.
    pub(crate) async fn start_among(peers: Peers, role: Role, addr: SocketAddr) -> Self {
        let listener = TcpListener::bind(addr).await.unwrap();
        let state = Arc::new(MockState {
            answers: Mutex::new(vec![Answer::Json("{\"ok\":true}".to_owned())]),
            info: Mutex::new(json!({
                "served_model_name": "m",
                "kv_compat": "x",
                "boot_id": "boot-1",
                "disaggregation_mode": serde_json::to_value(role).unwrap(),
            })),
            info_path: Mutex::new("/server_info"),
            models: Mutex::default(),
            healthy: Mutex::new(true),
            pings: Mutex::new(false),
            asked: Mutex::default(),
            counts: watch::Sender::default(),
            released: Notify::new(),
            frozen: Mutex::new(false),
        });
        let addr = listener.local_addr().unwrap();
        let routes = Router::new()
            .route("/health", get(health))
            .route("/ping", get(ping))
            .route("/server_info", get(info))
            .route("/get_server_info", get(info))
            .route("/v1/models", get(info))
            .fallback(any(answer))
            .with_state(Arc::clone(&state));
        let scheme = peers.identity().map_or("http", |_| "https");
        let (limits, end) = (Limits::default(), CancellationToken::new());
        let serving = serve_peers(
            listener,
            (peers, Clients::Required),
            routes,
            (limits, ListenerMetrics::default()),
            end.clone(),
        );
        let server = tokio::spawn(serving);
        Self {
            addr,
            number: STARTED.fetch_add(1, Ordering::Relaxed),
            role,
            scheme,
            state,
            end,
            server,
        }
    }

    pub(crate) fn spec(&self) -> WorkerSpec {
        WorkerSpec {
            id: format!("{}-{:06}", role_name(self.role), self.number),
            role: self.role,
            url: format!("{}://{}", self.scheme, self.addr),
            bootstrap_host: None,
            bootstrap_port: Some(8998),
            given_kv_compat: None,
        }
    }

    pub(crate) fn id(&self) -> String {
        self.spec().id
    }

    /// Answers every request from now on so.
    pub(crate) fn answer(&self, answer: Answer) {
        *self.state.answers.lock() = vec![answer];
    }

    /// Answers with each in turn, the last one repeatedly.
    pub(crate) fn answer_in_turn(&self, answers: impl IntoIterator<Item = Answer>) {
        let mut answers: Vec<_> = answers.into_iter().collect();
        answers.reverse();
        *self.state.answers.lock() = answers;
    }

    pub(crate) fn set_info(&self, key: &str, value: Value) {
        self.state.info.lock()[key] = value;
    }

    /// Says this, and only at this path, as an engine other than ours would.
    pub(crate) fn say_at(&self, path: &'static str, info: Value) {
        *self.state.info.lock() = info;
        *self.state.info_path.lock() = path;
    }

    /// Says this at `/v1/models`, too.
    pub(crate) fn list_models(&self, models: Value) {
        *self.state.models.lock() = Some(models);
    }

    /// Answers no probe from now on.
    pub(crate) fn freeze(&self) {
        *self.state.frozen.lock() = true;
    }

    pub(crate) fn set_pings(&self, pings: bool) {
        *self.state.pings.lock() = pings;
    }

    pub(crate) fn set_healthy(&self, healthy: bool) {
        *self.state.healthy.lock() = healthy;
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.state.asked.lock().clone()
    }

    pub(crate) fn asked_json(&self, idx: usize) -> Value {
        serde_json::from_slice(&self.asked()[idx].body).unwrap()
    }

    pub(crate) fn counts(&self) -> Counts {
        *self.state.counts.borrow()
    }

    /// Waits until its counts are as wanted.
    pub(crate) async fn until(&self, wanted: impl FnMut(&Counts) -> bool) {
        let mut counts = self.state.counts.subscribe();
        let reached = tokio::time::timeout(Duration::from_secs(10), counts.wait_for(wanted)).await;
        assert!(
            reached.is_ok(),
            "{} stays at {:?}",
            self.id(),
            self.counts()
        );
    }

    /// Releases the answer that waits for it.
    pub(crate) fn release(&self) {
        self.state.released.notify_one();
    }

    /// Closes its port, and its connections as they are answered.
    pub(crate) fn stop(&self) {
        self.end.cancel();
    }

    /// The same, and waits until all are closed.
    pub(crate) async fn stopped(mut self) {
        self.stop();
        (&mut self.server).await.unwrap();
    }
}

impl Drop for Mock {
    fn drop(&mut self) {
        self.stop();
    }
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::Prefill => "prefill",
        Role::Decode => "decode",
        Role::Unified => "null",
    }
}

async fn health(State(state): State<Arc<MockState>>) -> StatusCode {
    if *state.frozen.lock() {
        std::future::pending::<()>().await;
    }
    if *state.healthy.lock() {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    }
}

async fn ping(State(state): State<Arc<MockState>>) -> StatusCode {
    if *state.pings.lock() {
        StatusCode::OK
    } else {
        StatusCode::NOT_FOUND
    }
}

async fn info(State(state): State<Arc<MockState>>, uri: Uri) -> Result<String, StatusCode> {
    let models = state.models.lock().clone();
    if let (Some(models), "/v1/models") = (models, uri.path()) {
        return Ok(models.to_string());
    }
    if uri.path() == *state.info_path.lock() {
        Ok(state.info.lock().to_string())
    } else {
        Err(StatusCode::NOT_FOUND)
    }
}

async fn answer(State(state): State<Arc<MockState>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    state.asked.lock().push(Asked {
        path: head.uri.path().to_owned(),
        headers: head.headers,
        body,
    });
    let live = Live::begin(&state);
    let answer = {
        let mut answers = state.answers.lock();
        match answers.len() {
            1 => answers[0].clone(),
            _ => answers.pop().unwrap(),
        }
    };
    match answer {
        Answer::Json(body) => {
            drop(live);
            ([("content-type", "application/json")], body).into_response()
        }
        Answer::JsonThenClose(body) => {
            drop(live);
            let head = [
                ("content-type", "application/json"),
                ("connection", "close"),
            ];
            (head, body).into_response()
        }
        Answer::Status(status, body) => {
            drop(live);
            let status = StatusCode::from_u16(status).unwrap();
            (status, [("content-type", "application/json")], body).into_response()
        }
        Answer::StatusWhenReleased(status, body) => {
            live.0.released.notified().await;
            let status = StatusCode::from_u16(status).unwrap();
            (status, [("content-type", "application/json")], body).into_response()
        }
        Answer::Events(pieces) => events(pieces, live, End::Whole),
        Answer::EventsThenHang(pieces) => events(pieces, live, End::Hang),
        Answer::EventsThenBreak(pieces) => events(pieces, live, End::Break),
        Answer::Hang => std::future::pending().await,
    }
}

#[derive(Clone, Copy)]
enum End {
    Whole,
    Hang,
    Break,
}

fn events(pieces: Vec<String>, live: Live, end: End) -> Response {
    let pieces = stream::iter(pieces).map(|piece| Ok(Bytes::from(piece)));
    let tail = stream::once(async move {
        let live = live;
        match end {
            End::Whole => Ok(Bytes::new()),
            End::Hang => std::future::pending().await,
            End::Break => {
                live.0.released.notified().await;
                Err(std::io::Error::other("broken on purpose"))
            }
        }
    });
    let body = Body::from_stream(pieces.chain(tail));
    ([("content-type", "text/event-stream")], body).into_response()
}

// === impl Live ===

impl Live {
    fn begin(state: &Arc<MockState>) -> Self {
        state.counts.send_modify(|counts| {
            counts.asked += 1;
            counts.live += 1;
        });
        Self(Arc::clone(state))
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.0.counts.send_modify(|counts| counts.live -= 1);
    }
}
