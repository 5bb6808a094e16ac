//! A prefill or decode worker with the product's engine, KV transfer and bootstrap server. Only its HTTP is a stand-in.
//!
//! The engine takes its turns as a task of its host, and a step takes the time that a device would need; the numbers are
//! those of a real, tiny model.

use crate::software::Place;
use crate::worker::{self, PORT};
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use axum::{Json, Router};
use futures_util::stream;
use pd_engine::engine::{
    DecodeConfig, Device, DisaggregationMode, Engine, EngineConfig, EngineHandle, FinishReason,
    GenerateRequest, LogprobOptions, PrefillConfig, RequestStream, Scheduler, TokenEvent, Turn,
};
use pd_engine::sample::params::SamplingParams;
use pd_http::{Limits, ListenerMetrics, serve};
use pd_kv_transfer::{BootstrapServer, Peers, TransferConfig, TransportChoice};
use pd_net::TcpListener;
use pd_protocol::workers::{BootstrapFields, DrainState};
use pd_protocol::{Role, Transport};
use rand::RngExt;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

const BOOTSTRAP_PORT: u16 = 8998;
/// An engine that waits for transfers looks at them this often, as its thread does.
const IDLE_TURN: Duration = Duration::from_millis(100);
/// Source: pd-kv-transfer.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(10);
/// What a bad path adds to the time within which a peer is let go.
const PEER_SLACK: Duration = Duration::from_secs(6);
const DRAIN_INTERVAL: Duration = Duration::from_millis(50);

/// How large the engines of a deployment are; the same for all of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EngineShape {
    page_size: u32,
    total_tokens: u32,
    chunk: u32,
    running: u32,
    queued: u32,
    tcp_streams: usize,
    /// What a device takes for a step.
    step_time: Duration,
    /// Of a room, at each of its stages.
    room_timeout: Duration,
    heartbeat_interval: Duration,
    reserved_decode_tokens: u32,
}

#[derive(Clone)]
struct App {
    engine: EngineHandle,
    place: Place,
}

// === impl EngineShape ===

impl EngineShape {
    pub(crate) fn draw(rng: &mut StdRng) -> Self {
        let mut pick = |of: &[u32]| of[rng.random_range(0..of.len())];
        Self {
            page_size: pick(&[1, 16]),
            total_tokens: pick(&[128, 192, 512, 2048]),
            chunk: pick(&[16, 64, 512]),
            running: pick(&[2, 8]),
            queued: pick(&[2, 64]),
            tcp_streams: pick(&[1, 3]) as usize,
            step_time: Duration::from_millis(u64::from(pick(&[2, 20, 100]))),
            room_timeout: Duration::from_secs(u64::from(pick(&[5, 12, 300, 300]))),
            heartbeat_interval: Duration::from_secs(u64::from(pick(&[1, 5]))),
            reserved_decode_tokens: pick(&[1, 16]),
        }
    }

    /// The longest of each prompt: all fit with their answers, and the KV of one is sent in several pieces where the pool
    /// is large.
    pub(crate) fn prompts_max(self) -> [usize; 3] {
        let long = if self.is_large() { 300 } else { 60 };
        [60, 60, long]
    }

    /// Bytes a second below which the KV of such prompts takes longer than a room may.
    pub(crate) fn bytes_per_sec_min(self) -> u32 {
        if self.is_large() { 1 << 18 } else { 0 }
    }

    /// Whether a room outlives all else that may end it.
    pub(crate) fn is_patient(self) -> bool {
        self.room_timeout > Duration::from_secs(60)
    }

    fn is_large(self) -> bool {
        self.total_tokens >= 2048
    }

    /// Within this a worker lets go of a peer that is silent, also of one that had just registered.
    pub(crate) fn lets_go_within(self) -> Duration {
        let patience = self.heartbeat_interval * 3;
        patience.max(ATTACH_TIMEOUT) + PEER_SLACK
    }

    pub(crate) fn config(self, mode: DisaggregationMode) -> EngineConfig {
        let model =
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../agent/engine/golden/tiny-llama");
        EngineConfig {
            page_size: self.page_size,
            max_total_tokens: Some(self.total_tokens),
            chunked_prefill_size: Some(self.chunk),
            max_running_requests: self.running,
            max_queued_requests: self.queued,
            device: Device::Cpu {
                threads: Some(1),
                kv_memory_bytes: 1 << 24,
            },
            mode,
            ..EngineConfig::new(model)
        }
    }

    fn transfer(self, host: IpAddr) -> TransferConfig {
        TransferConfig {
            transport: TransportChoice::Only(Transport::Tcp),
            runtime: Some(Handle::current()),
            tcp_streams: self.tcp_streams,
            bootstrap_timeout: self.room_timeout,
            waiting_timeout: self.room_timeout,
            transfer_timeout: self.room_timeout,
            heartbeat_interval: self.heartbeat_interval,
            ..TransferConfig::new(host)
        }
    }

    fn mode(self, role: Role, host: IpAddr) -> DisaggregationMode {
        let transfer = self.transfer(host);
        if role == Role::Prefill {
            DisaggregationMode::Prefill(PrefillConfig {
                transfer,
                bootstrap_port: BOOTSTRAP_PORT,
                http_port: PORT,
            })
        } else {
            DisaggregationMode::Decode(DecodeConfig {
                transfer,
                num_reserved_decode_tokens: self.reserved_decode_tokens,
                extra_slots: None,
                polling_interval: 1,
            })
        }
    }
}

/// Runs a worker until it is asked to end and has drained; `show` gets each start's engine.
pub(crate) async fn run(
    place: Place,
    shape: EngineShape,
    show: impl Fn(EngineHandle) + Send,
    ends: CancellationToken,
) {
    let mut config = shape.config(shape.mode(place.role, place.ip()));
    if place.is_starved() {
        config.max_total_tokens = None;
        config.device = Device::Cpu {
            threads: Some(1),
            kv_memory_bytes: 1,
        };
        assert!(
            Engine::start_by_turns(config).is_err(),
            "it starts without memory"
        );
        return;
    }
    let (engine, scheduler) = Engine::start_by_turns(config).expect("the tiny model is served");
    show(engine.clone());
    tokio::spawn(drive(scheduler, shape.step_time));
    let _bootstrap = match place.role {
        Role::Prefill => Some(bootstrap(&engine).await),
        Role::Decode | Role::Unified => None,
    };
    let app = Router::new()
        .route("/health", get(health))
        .route("/server_info", get(info))
        .route("/generate", post(generate))
        .with_state(App {
            engine: engine.clone(),
            place,
        });
    let listener = TcpListener::bind(("0.0.0.0", PORT)).await;
    let listener = listener.expect("the port is free after a boot");
    let listener = listener.tap_io(worker::tune);
    let counted = (Limits::default(), ListenerMetrics::default());
    let drained = CancellationToken::new();
    let serving = serve(listener, app, counted, drained.clone());
    tokio::join!(serving, async {
        ends.cancelled().await;
        drain(&engine).await;
        drained.cancel();
    });
}

/// As the agent does.
async fn drain(engine: &EngineHandle) {
    engine.drain();
    while engine.drain_status().state != DrainState::Drained {
        sleep(DRAIN_INTERVAL).await;
    }
    engine.stop();
}

async fn bootstrap(engine: &EngineHandle) -> BootstrapServer {
    let listener = TcpListener::bind(("0.0.0.0", BOOTSTRAP_PORT)).await;
    let listener = listener.expect("the port is free after a boot");
    let info = engine.info();
    let identity = (&*info.boot_id, &*info.kv_compat);
    let server = BootstrapServer::serve(listener, &Peers::Plain, identity, Router::new());
    server.expect("the listener has an address")
}

/// Gives an engine its turns.
async fn drive(mut scheduler: Scheduler, step_time: Duration) {
    loop {
        match scheduler.turn() {
            Turn::Worked => sleep(step_time).await,
            // A wake-up that is missed only delays the next look.
            Turn::Idle => drop(timeout(IDLE_TURN, scheduler.commanded()).await),
            Turn::Last => return,
        }
    }
}

pub(crate) fn request(
    prompt: &[u64],
    tokens: usize,
    bootstrap: Option<BootstrapFields>,
) -> GenerateRequest {
    let ids = prompt.iter().map(|id| u32::try_from(*id).unwrap_or(0));
    GenerateRequest {
        rid: "simulated".to_owned(),
        input_ids: ids.collect(),
        sampling: SamplingParams {
            max_new_tokens: u32::try_from(tokens).ok(),
            temperature: 0.0,
            ignore_eos: true,
            ..SamplingParams::default()
        },
        logprobs: LogprobOptions::default(),
        grammar: None,
        bootstrap,
        choice: 0,
    }
}

async fn health(State(app): State<App>) -> Response {
    match app.engine.health() {
        Ok(()) => "OK".into_response(),
        Err(stopped) => (StatusCode::SERVICE_UNAVAILABLE, stopped.to_string()).into_response(),
    }
}

async fn info(State(app): State<App>) -> Json<Value> {
    let info = app.engine.info();
    Json(json!({
        "served_model_name": info.served_model_name,
        "disaggregation_mode": worker::mode(app.place.role),
        "boot_id": info.boot_id,
        "kv_compat": info.kv_compat,
        "bootstrap_port": BOOTSTRAP_PORT,
        "max_running_requests": info.max_running_requests,
        "context_length": info.context_length,
    }))
}

async fn generate(State(app): State<App>, Json(body): Json<Value>) -> Response {
    if app.place.is_sick() {
        return worker::failed();
    }
    let prompt = worker::ids(&body["input_ids"]);
    let tokens = body["sampling_params"]["max_new_tokens"].as_u64();
    let tokens = usize::try_from(tokens.unwrap_or(1)).unwrap_or(1);
    let bootstrap = serde_json::from_value(body.clone()).ok();
    let mut stream = match app.engine.submit(request(&prompt, tokens, bootstrap)) {
        Ok(stream) => stream,
        Err(error) if error.is_retriable() => return unavailable(&error.to_string()),
        Err(error) => {
            let body = json!({"error": {"message": error.to_string()}});
            return (StatusCode::BAD_REQUEST, Json(body)).into_response();
        }
    };
    let first = stream.recv().await.unwrap_or_default();
    if let Some(reason) = abort(&first) {
        return unavailable(reason);
    }
    if body["stream"] == json!(true) && app.place.role == Role::Decode {
        return events(first, stream);
    }
    whole(first, stream).await
}

async fn whole(first: TokenEvent, mut stream: RequestStream) -> Response {
    let mut ids = first.token_ids;
    let mut is_over = first.finish.is_some();
    while !is_over {
        let event = stream.recv().await.unwrap_or_default();
        if let Some(reason) = abort(&event) {
            return unavailable(reason);
        }
        is_over = event.finish.is_some();
        ids.extend(event.token_ids);
    }
    Json(json!({"output_ids": ids, "meta_info": {}})).into_response()
}

fn events(first: TokenEvent, stream: RequestStream) -> Response {
    let events = stream::unfold(
        (Some(first), stream, false),
        |(first, mut stream, is_over)| async move {
            if is_over {
                return None;
            }
            let event = match first {
                Some(first) => first,
                None => stream.recv().await?,
            };
            let json = match abort(&event) {
                Some(reason) => json!({"error": {"message": reason}}),
                None => json!({"output_ids": event.token_ids}),
            };
            let end = if event.finish.is_some() {
                "data: [DONE]\n\n"
            } else {
                ""
            };
            let text = format!("data: {json}\n\n{end}");
            Some((
                Ok::<_, Infallible>(Bytes::from(text)),
                (None, stream, event.finish.is_some()),
            ))
        },
    );
    let body = Body::from_stream(events);
    ([("content-type", "text/event-stream")], body).into_response()
}

fn abort(event: &TokenEvent) -> Option<&str> {
    match &event.finish {
        Some(FinishReason::Abort { reason, .. }) => Some(reason),
        Some(FinishReason::Stop { .. } | FinishReason::Length) | None => None,
    }
}

fn unavailable(reason: &str) -> Response {
    let body = json!({"error": {"message": reason}});
    (StatusCode::SERVICE_UNAVAILABLE, Json(body)).into_response()
}
