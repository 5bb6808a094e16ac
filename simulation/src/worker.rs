//! Workers as the router sees them, with KV that arrives by itself: prefill takes its time and leaves the room's key,
//! decode waits for that and counts out tokens that follow from the prompt.

use crate::software::Place;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use axum::{Json, Router};
use futures_util::stream;
use parking_lot::Mutex;
use pd_http::{Limits, ListenerMetrics, serve};
use pd_net::{KeepAlive, TcpListener, TcpStream, set_keepalive};
use pd_protocol::Role;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

pub(crate) const PORT: u16 = 30_000;
const KV_TIMEOUT: Duration = Duration::from_secs(5);
const KV_POLL: Duration = Duration::from_millis(5);

/// Rooms whose KV is there.
pub(crate) type Kv = Arc<Mutex<BTreeSet<u64>>>;

/// What a seed decides of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StandIn {
    /// Of one token that is decoded, or eight that are prefilled.
    pub(crate) token_time: Duration,
    /// What they say that they run at once.
    pub(crate) running_max: u32,
}

#[derive(Clone)]
struct Worker {
    place: Place,
    boot_id: String,
    kv: Kv,
    running_max: u32,
    token_time: Duration,
}

/// Serves until it is asked to end, and then what it has.
pub(crate) async fn run(
    place: Place,
    boot_id: String,
    kv: Kv,
    stand_in: StandIn,
    ends: CancellationToken,
) {
    let worker = Worker {
        place,
        boot_id,
        kv,
        running_max: stand_in.running_max,
        token_time: stand_in.token_time,
    };
    let app = Router::new()
        .route("/health", get(|| async { "OK" }))
        .route("/server_info", get(info))
        .route("/generate", post(generate))
        .with_state(worker);
    let listener = TcpListener::bind(("0.0.0.0", PORT)).await;
    let listener = listener.expect("the port is free after a boot");
    let listener = listener.tap_io(tune);
    let counted = (Limits::default(), ListenerMetrics::default());
    serve(listener, app, counted, ends).await;
}

/// Sets the options of a router's connection, as the agent does.
pub(crate) fn tune(stream: &mut TcpStream) {
    let tuned = set_keepalive(stream, KeepAlive::PROCESSES);
    tuned.expect("a simulated connection takes it");
}

/// The `nr`th token of the answer to a prompt.
pub(crate) fn token(prompt: &[u64], nr: u64) -> u64 {
    let seed = prompt.iter().fold(17_u64, |sum, token| {
        sum.wrapping_mul(31).wrapping_add(*token)
    });
    seed.wrapping_mul(nr + 1).wrapping_add(nr) % 50_000
}

/// A role as workers name it.
pub(crate) fn mode(role: Role) -> &'static str {
    if role == Role::Prefill {
        "prefill"
    } else {
        "decode"
    }
}

/// A list of token ids.
pub(crate) fn ids(list: &Value) -> Vec<u64> {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(Value::as_u64).collect()
}

/// The answer of a worker whose device fails.
pub(crate) fn failed() -> Response {
    let body = json!({"error": {"message": "the device does not answer"}});
    (StatusCode::INTERNAL_SERVER_ERROR, Json(body)).into_response()
}

async fn info(State(worker): State<Worker>) -> Json<Value> {
    Json(json!({
        "served_model_name": "m",
        "disaggregation_mode": mode(worker.place.role),
        "boot_id": worker.boot_id,
        "kv_compat": "1",
        "bootstrap_port": 8998,
        "max_running_requests": worker.running_max,
        "context_length": 4096,
    }))
}

async fn generate(State(worker): State<Worker>, Json(request): Json<Value>) -> Response {
    if worker.place.is_sick() {
        return failed();
    }
    let prompt = ids(&request["input_ids"]);
    let room = request["bootstrap_room"].as_u64();
    let Some(room) = room else {
        return (StatusCode::BAD_REQUEST, "no room").into_response();
    };
    if worker.place.role == Role::Prefill {
        sleep(worker.token_time * u32::try_from(prompt.len()).unwrap_or(u32::MAX) / 8).await;
        worker.kv.lock().insert(room);
        return Json(json!({"text": "", "meta_info": {}})).into_response();
    }
    let asked = Instant::now();
    while !worker.kv.lock().remove(&room) {
        if asked.elapsed() > KV_TIMEOUT {
            return (
                StatusCode::SERVICE_UNAVAILABLE,
                Json(json!({"error": {"message": "no KV came"}})),
            )
                .into_response();
        }
        sleep(KV_POLL).await;
    }
    let count = request["sampling_params"]["max_new_tokens"]
        .as_u64()
        .unwrap_or(1);
    if request["stream"] == json!(true) {
        return events(prompt, count, worker.token_time);
    }
    sleep(worker.token_time * u32::try_from(count).unwrap_or(u32::MAX)).await;
    let tokens: Vec<u64> = (0..count).map(|nr| token(&prompt, nr)).collect();
    Json(json!({"output_ids": tokens, "meta_info": {}})).into_response()
}

fn events(prompt: Vec<u64>, count: u64, token_time: Duration) -> Response {
    let events = stream::unfold(0, move |nr| {
        let prompt = prompt.clone();
        async move {
            sleep(token_time).await;
            let event = match nr {
                nr if nr < count => {
                    format!("data: {}\n\n", json!({"output_ids": [token(&prompt, nr)]}))
                }
                nr if nr == count => "data: [DONE]\n\n".to_owned(),
                _ => return None,
            };
            Some((Ok::<_, Infallible>(Bytes::from(event)), nr + 1))
        }
    });
    let body = Body::from_stream(events);
    ([("content-type", "text/event-stream")], body).into_response()
}
