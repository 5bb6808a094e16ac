//! Stands for `pd-agent` or `pd-router`, under the name that it is linked by: the ports, the health
//! and the admin API of the real one, and no model. A model file that holds `crash` ends an agent
//! at its start; one that holds `busy` gives it a request in flight that never ends; with `loaded`
//! prefill says that it is always in steps.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{delete, get, post};
use pd_http::{Limits, ListenerMetrics, serve_peers};
use pd_identity::{Clients, Identity, Keyring, Peers};
use pd_protocol::workers::{
    DispatchStatus, DrainState, DrainStatus, WorkerList, WorkerSpec, WorkerState, WorkerStatus,
};
use std::collections::BTreeMap;
use std::sync::{Arc, atomic::AtomicBool, atomic::Ordering};
use std::time::Instant;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

struct Agent {
    busy: bool,
    /// Since when it computes all the time.
    loaded: Option<Instant>,
    draining: AtomicBool,
}

#[derive(Default)]
struct Router(parking_lot::Mutex<BTreeMap<String, WorkerStatus>>);

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let program = std::env::args().next().unwrap_or_default();
    let (api, admin) = if program.ends_with("pd-router") {
        router()
    } else if program.ends_with("pd-agent") {
        agent()
    } else {
        return;
    };
    let admin_host = flag("--admin-host")
        .or(flag("--host"))
        .expect("--host is given");
    let host = flag("--host").expect("--host is given");
    let api_at = format!("{host}:{}", flag("--port").expect("--port is given"));
    let admin_at = format!(
        "{admin_host}:{}",
        flag("--admin-port").expect("--admin-port is given")
    );
    let api_listener = TcpListener::bind(api_at)
        .await
        .expect("the API's address is free");
    let admin_listener = TcpListener::bind(admin_at)
        .await
        .expect("the admin address is free");
    let mut terminate = signal(SignalKind::terminate()).expect("SIGTERM can be caught");
    tokio::select! {
        () = serve_api(api_listener, api, program.ends_with("pd-agent")) => {}
        _ = axum::serve(admin_listener, admin) => {}
        _ = terminate.recv() => eprintln!("asked to end"),
    }
}

/// Over TLS if there is a key, as agents do.
async fn serve_api(listener: TcpListener, api: axum::Router, is_agent: bool) {
    let key_file = flag("--peer-key-file").filter(|_| is_agent);
    let peers = key_file.map_or(Peers::Plain, |file| {
        let keyring = Keyring::read(file.as_ref()).expect("a key file");
        Peers::Tls(Identity::new(keyring))
    });
    let counted = (Limits::default(), ListenerMetrics::default());
    let end = CancellationToken::new();
    serve_peers(listener, (peers, Clients::Optional), api, counted, end).await;
}

fn flag(name: &str) -> Option<String> {
    let args: Vec<String> = std::env::args().collect();
    let at = args.iter().position(|arg| arg == name)?;
    args.get(at + 1).cloned()
}

fn agent() -> (axum::Router, axum::Router) {
    let model = flag("--model-path").expect("--model-path is given");
    let model = std::fs::read_to_string(model).expect("the model can be read");
    if model.contains("crash") {
        eprintln!("the model is broken");
        std::process::exit(3);
    }
    let state = Arc::new(Agent {
        busy: model.contains("busy"),
        loaded: model.contains("loaded").then(Instant::now),
        draining: AtomicBool::new(false),
    });
    let api = axum::Router::new()
        .route("/health", get(async || StatusCode::OK))
        .route("/metrics", get(agent_metrics))
        .with_state(Arc::clone(&state));
    let admin = axum::Router::new()
        .route("/drain", get(drain_status).post(begin_drain))
        .with_state(state);
    (api, admin)
}

/// The series that scaling looks at: a prompt of 1000 tokens a second, and a second to compute it.
async fn agent_metrics(State(agent): State<Arc<Agent>>) -> String {
    let loaded_s = agent
        .loaded
        .map_or(0.0, |since| since.elapsed().as_secs_f64());
    let prefills = flag("--disaggregation-mode").as_deref() == Some("prefill");
    let busy_s = if prefills { loaded_s } else { 0.0 };
    let tokens = busy_s * 1000.0;
    let moving = [
        ("num_requests_total", busy_s),
        ("time_to_first_token_seconds_count", busy_s),
        ("prompt_tokens_total", tokens),
        ("prefill_tokens_total", tokens),
        ("step_time_seconds_sum", busy_s),
        ("max_total_num_tokens", 100_000.0),
    ];
    let resting = [
        "cached_tokens_total",
        "e2e_request_latency_seconds_count",
        "generation_tokens_total",
        "inter_token_latency_seconds_count",
        "inter_token_latency_seconds_sum",
        "kv_transfer_bytes_total",
        "kv_transfer_seconds_total",
        "num_running_reqs",
        "num_queue_tokens",
        "queue_oldest_age_seconds",
        "num_used_tokens",
        "prealloc_tokens",
    ];
    let all = moving.into_iter().chain(resting.map(|name| (name, 0.0)));
    all.map(|(name, value)| format!("pdserve_{name} {value}\n"))
        .collect()
}

async fn begin_drain(state: State<Arc<Agent>>) -> Json<DrainStatus> {
    state.draining.store(true, Ordering::Relaxed);
    eprintln!("asked to drain");
    drain_status(state).await
}

async fn drain_status(State(agent): State<Arc<Agent>>) -> Json<DrainStatus> {
    let state = match (agent.draining.load(Ordering::Relaxed), agent.busy) {
        (false, _) => DrainState::Serving,
        (true, true) => DrainState::Draining,
        (true, false) => DrainState::Drained,
    };
    Json(DrainStatus {
        state,
        in_flight: u64::from(agent.busy),
    })
}

fn router() -> (axum::Router, axum::Router) {
    let state = Arc::new(Router::default());
    let api = axum::Router::new()
        .route("/health", get(async || StatusCode::OK))
        .route("/ready", get(ready))
        .route("/metrics", get(async || "pd_router_queue_waiting 0\n"))
        .with_state(Arc::clone(&state));
    let admin = axum::Router::new()
        .route("/workers", get(list).post(add))
        .route("/workers/{id}", delete(remove))
        .route("/workers/{id}/cordon", post(cordon))
        .with_state(state);
    (api, admin)
}

async fn ready(State(router): State<Arc<Router>>) -> StatusCode {
    let workers = router.0.lock();
    let serving = workers
        .values()
        .filter(|worker| worker.state == WorkerState::Serving);
    let mut roles: Vec<_> = serving.map(|worker| worker.spec.role).collect();
    roles.sort();
    roles.dedup();
    if roles.len() == 2 {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    }
}

async fn list(State(router): State<Arc<Router>>) -> Json<WorkerList> {
    Json(WorkerList {
        workers: router.0.lock().values().cloned().collect(),
        dispatch: DispatchStatus::default(),
    })
}

async fn add(
    State(router): State<Arc<Router>>,
    Json(spec): Json<WorkerSpec>,
) -> Json<WorkerStatus> {
    let worker = WorkerStatus {
        spec,
        state: WorkerState::Serving,
        circuit_open: false,
        in_flight: 0,
        kv_compat: None,
        boot_id: None,
        weights: None,
        reason: None,
    };
    router
        .0
        .lock()
        .insert(worker.spec.id.clone(), worker.clone());
    Json(worker)
}

async fn cordon(
    State(router): State<Arc<Router>>,
    Path(id): Path<String>,
) -> Result<Json<WorkerStatus>, StatusCode> {
    let mut workers = router.0.lock();
    let worker = workers.get_mut(&id).ok_or(StatusCode::NOT_FOUND)?;
    worker.state = WorkerState::Cordoned;
    Ok(Json(worker.clone()))
}

async fn remove(
    State(router): State<Arc<Router>>,
    Path(id): Path<String>,
) -> Result<Json<WorkerStatus>, StatusCode> {
    router
        .0
        .lock()
        .remove(&id)
        .map(Json)
        .ok_or(StatusCode::NOT_FOUND)
}
