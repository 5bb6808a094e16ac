//! The bootstrap server: registrations that contradict, bodies and questions that make no sense.
//! The good registration stays, and the fleet serves.

use super::{Served, says};
use anyhow::{Context, Result, ensure};
use hyper::Method;
use pd_e2e::binaries;
use pd_e2e::client::{Answer, Client};
use pd_e2e::fleet::FleetSpec;
use pd_protocol::Role;
use pd_protocol::bootstrap::{PrefillServerInfo, RankAddr, RouteQuery};
use pd_protocol::labels::HEADER_BOOT_ID;
use pd_protocol::layout::RankId;
use pd_protocol::ports;
use serde_json::{Value, json};

/// The longest body that is read, and one byte more.
const BODY_BYTES_MAX: usize = 2 << 20;

/// Status and words of a refusal.
type Refusal = (u16, &'static [&'static str]);
/// A request to a bootstrap server, and how it is refused.
type Case = (Method, &'static str, Vec<u8>, Refusal);

/// A bootstrap server and what it says of its one rank.
struct Bootstrap<'a> {
    client: &'a Client,
    base: String,
    layout: PrefillServerInfo,
    rank: RankAddr,
}

// === impl Bootstrap ===

impl<'a> Bootstrap<'a> {
    async fn of(served: &'a Served) -> Result<Self> {
        let address = served.fleet.worker(Role::Prefill).address;
        let base = format!("http://{address}:{}", ports::BOOTSTRAP);
        let client = &served.fleet.client;
        let (layout, rank) = registered(client, &base).await?;
        Ok(Self {
            client,
            base,
            layout,
            rank,
        })
    }

    /// The registration that the rank sent, but for some values.
    fn registration(&self, patch: &Value) -> Vec<u8> {
        let mut body = json!({
            "attn_tp_size": 1, "attn_tp_rank": 0, "attn_cp_size": 1, "attn_cp_rank": 0,
            "attn_dp_size": 1, "attn_dp_rank": 0, "pp_size": 1, "pp_rank": 0,
            "system_dp_size": 1, "system_dp_rank": 0,
            "rank_ip": self.rank.rank_ip, "rank_port": self.rank.rank_port,
            "page_size": self.layout.page_size, "kv_cache_dtype": self.layout.kv_cache_dtype,
        });
        for (key, value) in patch.as_object().expect("a patch is an object") {
            body[key] = value.clone();
        }
        body.to_string().into_bytes()
    }

    async fn refuses(&self, case: Case) -> Result<()> {
        let (method, path, body, expected) = case;
        let shown = String::from_utf8_lossy(&body[..body.len().min(80)]).into_owned();
        let shown = format!("{method} {path} {shown}");
        let url = format!("{}{path}", self.base);
        check(self.client.send(method, &url, body).await, expected).context(shown)
    }
}

fn check(answer: Result<Answer>, (status, parts): Refusal) -> Result<()> {
    let answer = answer?;
    ensure!(
        answer.status.as_u16() == status,
        "{} instead of {status}: {}",
        answer.status,
        answer.text()
    );
    says(&answer.text(), parts)
}

fn route(query: RouteQuery) -> String {
    format!(
        "/route?prefill_dp_rank={}&prefill_cp_rank={}&target_tp_rank={}&target_pp_rank={}",
        query.prefill_dp_rank,
        query.prefill_cp_rank.unwrap_or(-1),
        query.target_tp_rank,
        query.target_pp_rank
    )
}

async fn registered(client: &Client, base: &str) -> Result<(PrefillServerInfo, RankAddr)> {
    let layout = format!("{base}{}", route(RouteQuery::TOPOLOGY));
    let rank = format!("{base}{}", route(RouteQuery::rank(RankId::default())));
    Ok((
        serde_json::from_value(client.get(&layout).await?.json()?)?,
        serde_json::from_value(client.get(&rank).await?.json()?)?,
    ))
}

/// Registrations of layouts that contradict the registered one, or make no sense.
fn contradictions(bootstrap: &Bootstrap<'_>) -> Vec<Case> {
    let table: [(Value, &'static [&'static str]); 9] = [
        (
            json!({"attn_tp_size": 2}),
            &["parallel layout", "tp_size: 1", "tp_size: 2"],
        ),
        (json!({"page_size": 64}), &["page_size was 16, now 64"]),
        (
            json!({"kv_cache_dtype": "fp8_e4m3"}),
            &["kv_cache_dtype was \"float32\", now \"fp8_e4m3\""],
        ),
        (
            json!({"kv_layout": "upside_down"}),
            &["kv_layout", "upside_down"],
        ),
        (json!({"attn_tp_rank": 5}), &["not within the layout"]),
        (json!({"attn_tp_size": 0}), &["1 to 65536 ranks", "has 0"]),
        (
            json!({"attn_tp_size": u32::MAX, "pp_size": u32::MAX}),
            &["1 to 65536 ranks"],
        ),
        (
            json!({"system_dp_size": 4, "system_dp_rank": 1}),
            &["dp_size: 1", "dp_size: 4"],
        ),
        (json!({"rank_port": 9}), &["boot id", HEADER_BOOT_ID]),
    ];
    table
        .into_iter()
        .map(|(patch, parts)| {
            let body = bootstrap.registration(&patch);
            (Method::PUT, "/route", body, (400, parts))
        })
        .collect()
}

/// Bodies that are no registration.
fn nonsense(bootstrap: &Bootstrap<'_>) -> Vec<Case> {
    let mut half = bootstrap.registration(&json!({}));
    half.truncate(half.len() / 2);
    let nested = format!("{{\"x\": {}", "[".repeat(100_000));
    let wrong = |patch: Value| bootstrap.registration(&patch);
    let table: [(Vec<u8>, &'static [&'static str]); 10] = [
        (half, &["EOF", "line 1 column"]),
        (b"".to_vec(), &["EOF"]),
        (b"\xff\xfe\x00".to_vec(), &["line 1 column 1"]),
        (b"[1, 2]".to_vec(), &["line 1 column"]),
        (b"{}".to_vec(), &["missing field `attn_tp_size`"]),
        (nested.into_bytes(), &["EOF", "line 1 column 100006"]),
        (wrong(json!({"rank_ip": 5})), &["expected a string"]),
        (wrong(json!({"rank_port": 70_000})), &["70000", "u16"]),
        (wrong(json!({"page_size": -16})), &["-16", "u32"]),
        (wrong(json!({"page_size": null})), &["null", "u32"]),
    ];
    let refused = |(body, parts)| (Method::PUT, "/route", body, (400, parts));
    table.into_iter().map(refused).collect()
}

fn questions() -> Vec<Case> {
    let get = |path, refusal: Refusal| (Method::GET, path, Vec::new(), refusal);
    let post = |path, body: &[u8], refusal: Refusal| (Method::POST, path, body.to_vec(), refusal);
    vec![
        get("/route", (400, &["Missing inputs"])),
        get("/route?prefill_dp_rank=x", (400, &["Missing inputs"])),
        get(
            "/route?prefill_dp_rank=-1&target_tp_rank=0&target_pp_rank=0",
            (400, &["all be -1"]),
        ),
        get(
            "/route?prefill_dp_rank=0&target_tp_rank=7&target_pp_rank=0",
            (404, &["tp_rank: 7"]),
        ),
        get("/nothing", (404, &["no /nothing here", "/route"])),
        post("/route", b"{}", (405, &["/route does not take POST"])),
        (
            Method::DELETE,
            "/route",
            Vec::new(),
            (405, &["/route does not take DELETE"]),
        ),
        post(
            "/register_dp_rank",
            b"{\"bootstrap_room\": -1}",
            (400, &["-1"]),
        ),
        post(
            "/query_dp_ranks",
            b"{\"bootstrap_rooms\": 7}",
            (400, &["7"]),
        ),
        (
            Method::PUT,
            "/route",
            vec![b' '; BODY_BYTES_MAX + 1],
            (413, &["2097152 bytes"]),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_bootstrap_server_refuses_leaves_the_registration_and_the_fleet() -> Result<()> {
    let served = Served::start(FleetSpec::new(binaries::tiny_model("tiny-llama"))).await?;
    let bootstrap = Bootstrap::of(&served).await?;
    let cases = [
        contradictions(&bootstrap),
        nonsense(&bootstrap),
        questions(),
    ];
    for case in cases.into_iter().flatten() {
        bootstrap.refuses(case).await?;
    }
    let stranger = bootstrap
        .client
        .clone()
        .with_header(HEADER_BOOT_ID, "stranger")?;
    let stolen = bootstrap.registration(&json!({"rank_port": 9}));
    let url = format!("{}/route", bootstrap.base);
    let stolen = stranger.send(Method::PUT, &url, stolen).await;
    check(stolen, (400, &["belongs to boot", "for boot stranger"]))?;

    let (layout, rank) = registered(bootstrap.client, &bootstrap.base).await?;
    ensure!(layout == bootstrap.layout, "the layout is now {layout:?}");
    ensure!(rank == bootstrap.rank, "the rank is now {rank:?}");
    served.unharmed().await
}
