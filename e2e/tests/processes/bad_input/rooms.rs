//! Rooms that cannot work, on legs sent straight to the workers: no peer comes, the prefill named
//! is none, the room is taken.

use super::{Served, says, words};
use anyhow::{Context, Result, ensure};
use futures_util::future::try_join_all;
use pd_e2e::client::Answer;
use pd_e2e::fleet::{FleetSpec, eventually};
use pd_e2e::metrics::Metrics;
use pd_e2e::prompts::{essence, greedy, ids};
use pd_e2e::{address, binaries};
use pd_protocol::Role;
use pd_protocol::ports;
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::Instant;

/// Bound of every stage of a room in these tests, and when its failure must be reported.
const STAGE_SECS: &str = "0.5";
const REPORTED_WITHIN: Duration = Duration::from_secs(4);
/// A room that must not wait for the bound of its stage ends within this.
const AT_ONCE: Duration = Duration::from_secs(2);

fn spec() -> FleetSpec {
    FleetSpec::new(binaries::tiny_model("tiny-llama"))
}

/// One leg of a request, as a router would send it.
fn leg(room: impl Into<Value>, prefill: SocketAddr) -> Value {
    let mut body = greedy(&ids(7, 40), 8);
    body["bootstrap_host"] = json!(prefill.ip().to_string());
    body["bootstrap_port"] = json!(prefill.port());
    body["bootstrap_room"] = room.into();
    body
}

fn bootstrap_of(served: &Served) -> SocketAddr {
    (served.fleet.worker(Role::Prefill).address, ports::BOOTSTRAP).into()
}

async fn send(served: &Served, role: Role, body: &Value) -> Result<Answer> {
    let url = format!("{}/generate", served.fleet.worker(role).url());
    served.fleet.client.post(&url, body).await
}

/// The leg ends with this status and these words, in time.
async fn ends(
    served: &Served,
    (role, body): (Role, Value),
    limit: Duration,
    (status, parts): (u16, &[&str]),
) -> Result<()> {
    let started = Instant::now();
    let answer = send(served, role, &body).await?;
    let room = &body["bootstrap_room"];
    ensure!(
        answer.status.as_u16() == status,
        "room {room}: {} instead of {status}: {}",
        answer.status,
        answer.text()
    );
    ensure!(
        started.elapsed() < limit,
        "room {room}: reported after {:?}",
        started.elapsed()
    );
    says(&answer.text(), parts).with_context(|| format!("room {room}"))
}

/// Listens in a bootstrap server's place and answers every request with `reply`.
async fn stand_in(reply: impl Into<Vec<u8>>) -> Result<SocketAddr> {
    let reply = reply.into();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let at = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let reply = reply.clone();
            tokio::spawn(async move {
                let mut asked = [0; 1024];
                // The client may leave first; an empty reply keeps the connection silent.
                let _read = stream.read(&mut asked).await;
                let _written = stream.write_all(&reply).await;
                let _left = stream.read(&mut asked).await;
            });
        }
    });
    Ok(at)
}

fn http_reply(status: &str, body: &str) -> String {
    let len = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-length: {len}\r\n\r\n{body}")
}

/// A layout as prefill reports it, but for one value.
fn other_layout() -> String {
    let layout = json!({
        "attn_tp_size": 1, "attn_cp_size": 1, "dp_size": 1, "pp_size": 1, "page_size": 64,
        "kv_cache_dtype": "float32", "follow_bootstrap_room": true,
    });
    http_reply("200 OK", &layout.to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rooms_that_never_meet_end_with_a_reason_in_their_time() -> Result<()> {
    let mut spec = spec();
    spec.agent_args = words(&format!(
        "--disaggregation-bootstrap-timeout {STAGE_SECS} \
         --disaggregation-waiting-timeout {STAGE_SECS} \
         --disaggregation-transfer-timeout {STAGE_SECS}"
    ));
    let served = Served::start(spec).await?;
    let here = bootstrap_of(&served);
    let no_server = SocketAddr::from((here.ip(), ports::HTTP));
    let absent = SocketAddr::from((address::fresh(), ports::BOOTSTRAP));
    let silent = stand_in("").await?;
    let garbage = stand_in("\x00\x01garbage\r\n\r\n").await?;
    let no_json = stand_in(http_reply("200 OK", "{\"attn_tp_size\": ")).await?;
    let failing = stand_in(http_reply("500 Internal Server Error", "on fire")).await?;
    let never_ready = stand_in(http_reply("503 Service Unavailable", "not yet")).await?;
    let misfit = stand_in(other_layout()).await?;
    let mut no_host = leg(9, here);
    no_host["bootstrap_host"] = json!("no such host");
    let unasked = (Role::Prefill, leg(1, here));
    let cases: [(_, &[&str]); 10] = [
        (unasked, &["room 1", "decode sent no TransferInfo in 500ms"]),
        (
            (Role::Decode, leg(2, here)),
            &["room 2", "prefill sent nothing in 500ms"],
        ),
        (
            (Role::Decode, leg(3, absent)),
            &["was not ready in 500ms", &absent.to_string()],
        ),
        ((Role::Decode, leg(4, no_server)), &["404", "/route"]),
        (
            (Role::Decode, leg(5, silent)),
            &["was not ready in 500ms", &silent.to_string()],
        ),
        (
            (Role::Decode, leg(6, garbage)),
            &["was not ready in 500ms", &garbage.to_string()],
        ),
        (
            (Role::Decode, leg(7, no_json)),
            &["answered no route", &no_json.to_string()],
        ),
        (
            (Role::Decode, leg(8, failing)),
            &["500", "on fire", &failing.to_string()],
        ),
        ((Role::Decode, no_host), &["not a valid address"]),
        (
            (Role::Decode, leg(10, misfit)),
            &["page_size differs: prefill has 64, decode has 16"],
        ),
    ];
    let all = cases
        .into_iter()
        .map(|(leg, parts)| ends(&served, leg, REPORTED_WITHIN, (503, parts)));
    try_join_all(all).await?;
    let late = (Role::Decode, leg(11, never_ready));
    ends(
        &served,
        late,
        REPORTED_WITHIN,
        (503, &["was not ready in 500ms"]),
    )
    .await?;
    served.unharmed().await
}

/// Without short bounds, a prefill that is not there is known all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bootstrap_server_that_does_not_exist_is_named_within_two_seconds() -> Result<()> {
    let served = Served::start(spec()).await?;
    let absent = SocketAddr::from((address::fresh(), ports::BOOTSTRAP));
    let refused: &[&str] = &["cannot be reached", &absent.to_string()];
    let gone = (Role::Decode, leg(1, absent));
    ends(&served, gone, AT_ONCE, (503, refused)).await?;
    let garbage = stand_in("\x00\x01garbage\r\n\r\n").await?;
    let refused: &[&str] = &["cannot be reached", &garbage.to_string()];
    let garbage = (Role::Decode, leg(2, garbage));
    ends(&served, garbage, AT_ONCE, (503, refused)).await?;
    served.unharmed().await
}

async fn rooms_in_flight(served: &Served, role: Role, wanted: f64) -> Result<()> {
    eventually(REPORTED_WITHIN, || async {
        let url = served.fleet.worker(role).url();
        let metrics = Metrics::scrape(&served.fleet.client, &url).await?;
        let rooms = metrics.sum("pdserve_rooms_in_flight", &[]);
        ensure!(rooms == wanted, "{rooms} rooms are in flight on {url}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_room_in_use_is_refused_and_its_first_request_goes_on() -> Result<()> {
    let served = Served::start(spec()).await?;
    let here = bootstrap_of(&served);
    let alone = super::ask(&served.fleet, &greedy(&ids(7, 40), 8)).await?;
    let in_use: (u16, &[&str]) = (400, &["bootstrap_room", "is in use by another request"]);
    for (room, first, second) in [
        (21, Role::Prefill, Role::Decode),
        (22, Role::Decode, Role::Prefill),
    ] {
        let body = leg(room, here);
        let meet = async {
            rooms_in_flight(&served, first, 1.0).await?;
            ends(&served, (first, body.clone()), AT_ONCE, in_use).await?;
            send(&served, second, &body).await
        };
        let (one, other) = tokio::join!(send(&served, first, &body), meet);
        let (one, other) = (one?, other?);
        ensure!(one.status == 200, "the first leg: {}", one.text());
        ensure!(other.status == 200, "the second leg: {}", other.text());
        let decoded = if first == Role::Decode { one } else { other };
        ensure!(essence(&decoded.json()?)["output_ids"] == alone["output_ids"]);
    }
    let again = (Role::Prefill, leg(21, here));
    let used: &[&str] = &["bootstrap_room 21", "used a moment ago", "draw a new one"];
    ends(&served, again, AT_ONCE, (500, used)).await?;
    let again = (Role::Decode, leg(22, here));
    ends(&served, again, AT_ONCE, (503, &["room 22 was used before"])).await?;
    served.unharmed().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_room_is_refused_with_its_field() -> Result<()> {
    let served = Served::start(spec()).await?;
    let here = bootstrap_of(&served);
    let patched = |field: &str, value: Value| {
        let mut body = leg(31, here);
        body[field] = value;
        body
    };
    let cases: [(Value, &[&str]); 10] = [
        (leg(0, here), &["bootstrap_room 0", "9223372036854775807"]),
        (leg(-1, here), &["bootstrap_room", "-1"]),
        (leg(1_u64 << 63, here), &["9223372036854775808", "63 bits"]),
        (leg(1.5, here), &["bootstrap_room"]),
        (leg("31", here), &["bootstrap_room"]),
        (
            leg(json!([31, 32]), here),
            &["bootstrap_room", "2 elements"],
        ),
        (leg(Value::Null, here), &["bootstrap_room", "router"]),
        (patched("bootstrap_host", Value::Null), &["bootstrap_host"]),
        (patched("bootstrap_host", json!(5)), &["bootstrap_host"]),
        (patched("bootstrap_port", json!(70_000)), &["65535"]),
    ];
    for (body, parts) in cases {
        for role in [Role::Prefill, Role::Decode] {
            ends(&served, (role, body.clone()), AT_ONCE, (400, parts)).await?;
        }
    }
    served.unharmed().await
}
