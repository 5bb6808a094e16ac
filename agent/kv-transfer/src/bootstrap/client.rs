//! Client of the bootstrap server: prefill registers through it, decode asks it. A refused
//! connection is tried a few times only (prefill is gone), silence is borne for as long as a missed
//! heartbeat (prefill is frozen), "not ready" is asked again for as long as the caller waits.

use crate::clock::Instant;
use crate::config::BootstrapAddr;
use crate::failure::FailureReason;
use crate::net::{self, HttpClient};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use pd_identity::Peers;
use pd_protocol::Backoff;
use pd_protocol::bootstrap::{PrefillServerInfo, RankAddr, RouteQuery, RouteRegistration};
use pd_protocol::labels::{HEADER_BOOT_ID, HEADER_KV_COMPAT};
use pd_protocol::layout::RankId;
use std::time::Duration;

/// One exchange takes at most this. Source: docs/sglang-protocol.md#bootstrap.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(5);
/// Until a connection is open. Source: docs/sglang-protocol.md#timeouts.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Tries while the connection is refused: 0.1 + 0.2 + 0.4 s, so a dead prefill is known in a second.
const CONNECT_TRIES: u32 = 4;
const BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(100), Duration::from_secs(1));
/// Largest answer that is read.
const ANSWER_BYTES_MAX: usize = 1 << 20;

#[derive(Clone)]
pub(crate) struct BootstrapClient {
    http: HttpClient,
    /// Silence for this long means that prefill is frozen.
    patience: Duration,
}

/// A prefill's layout and the process that stated it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Topology {
    pub(crate) info: PrefillServerInfo,
    pub(crate) boot_id: Option<String>,
    pub(crate) kv_compat: Option<String>,
}

/// How one exchange ended.
enum Outcome {
    Answer(HeaderMap, Bytes),
    /// Asking again may help: not registered yet.
    Later(String),
    Silent(String),
    /// No process listens there.
    Unreachable(String),
    Refused(String),
}

impl BootstrapClient {
    pub(crate) fn new(peers: Peers, patience: Duration) -> Self {
        Self {
            http: net::http_client(peers, CONNECT_TIMEOUT),
            patience,
        }
    }

    /// The layout of a prefill; waits until all of its ranks are registered.
    pub(crate) async fn topology(&self, addr: &BootstrapAddr) -> Result<Topology, FailureReason> {
        let (headers, body) = self.ask(addr, RouteQuery::TOPOLOGY).await?;
        let header = |name: &str| {
            let value = headers.get(name)?;
            value.to_str().ok().map(str::to_owned)
        };
        Ok(Topology {
            info: parse(addr, &body)?,
            boot_id: header(HEADER_BOOT_ID),
            kv_compat: header(HEADER_KV_COMPAT),
        })
    }

    /// Address of one rank.
    pub(crate) async fn rank(
        &self,
        addr: &BootstrapAddr,
        rank: RankId,
    ) -> Result<RankAddr, FailureReason> {
        let (_, body) = self.ask(addr, RouteQuery::rank(rank)).await?;
        parse(addr, &body)
    }

    async fn ask(
        &self,
        addr: &BootstrapAddr,
        query: RouteQuery,
    ) -> Result<(HeaderMap, Bytes), FailureReason> {
        let path = format!(
            "/route?prefill_dp_rank={}&prefill_cp_rank={}&target_tp_rank={}&target_pp_rank={}",
            query.prefill_dp_rank,
            query.prefill_cp_rank.unwrap_or(-1),
            query.target_tp_rank,
            query.target_pp_rank,
        );
        let mut attempt_idx: u32 = 0;
        let mut unreachable = 0;
        let mut heard = Instant::now();
        loop {
            match self
                .exchange(addr, Method::GET, &path, None, Bytes::new())
                .await
            {
                Outcome::Answer(headers, body) => return Ok((headers, body)),
                Outcome::Refused(why) => {
                    return Err(FailureReason::peer(format!(
                        "bootstrap server {addr}: {why}"
                    )));
                }
                Outcome::Unreachable(why) => {
                    unreachable += 1;
                    if unreachable >= CONNECT_TRIES {
                        let message = format!("bootstrap server {addr} cannot be reached: {why}");
                        return Err(FailureReason::network(message));
                    }
                }
                Outcome::Later(why) => {
                    tracing::debug!(%addr, why, "retrying the bootstrap server");
                    unreachable = 0;
                    heard = Instant::now();
                }
                Outcome::Silent(why) => {
                    if heard.elapsed() >= self.patience {
                        let message = format!("bootstrap server {addr} is silent: {why}");
                        return Err(FailureReason::peer(message));
                    }
                }
            }
            tokio::time::sleep(BACKOFF.delay(attempt_idx)).await;
            attempt_idx = attempt_idx.saturating_add(1);
        }
    }

    /// Registers a rank; tries until it is accepted or refused.
    pub(crate) async fn register(
        &self,
        addr: &BootstrapAddr,
        registration: &RouteRegistration,
        boot_id: &str,
    ) -> Result<(), FailureReason> {
        let body = serde_json::to_vec(registration).expect("a registration is JSON");
        let body = Bytes::from(body);
        let mut attempt_idx: u32 = 0;
        loop {
            let put = self.exchange(addr, Method::PUT, "/route", Some(boot_id), body.clone());
            match put.await {
                Outcome::Answer(..) => return Ok(()),
                Outcome::Refused(why) => {
                    let message = format!("bootstrap server {addr} refused this rank: {why}");
                    return Err(FailureReason::application(message));
                }
                Outcome::Later(why) | Outcome::Silent(why) | Outcome::Unreachable(why) => {
                    tracing::debug!(%addr, why, "retrying the registration with the bootstrap server");
                }
            }
            tokio::time::sleep(BACKOFF.delay(attempt_idx)).await;
            attempt_idx = attempt_idx.saturating_add(1);
        }
    }

    async fn exchange(
        &self,
        addr: &BootstrapAddr,
        method: Method,
        path: &str,
        boot_id: Option<&str>,
        body: Bytes,
    ) -> Outcome {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://{addr}{path}"))
            .header(http::header::CONTENT_TYPE, "application/json");
        if let Some(boot_id) = boot_id {
            request = request.header(HEADER_BOOT_ID, boot_id);
        }
        let request = match request.body(Full::new(body)) {
            Ok(request) => request,
            Err(error) => return Outcome::Refused(format!("not a valid address: {error}")),
        };
        let answer = async {
            let answer = self.http.request(request).await.map_err(|error| {
                let cause = std::error::Error::source(&error);
                let why = cause.map_or_else(|| error.to_string(), ToString::to_string);
                Outcome::Unreachable(why)
            })?;
            let (parts, body) = answer.into_parts();
            let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
            let body = body.map_err(|error| Outcome::Later(error.to_string()))?;
            Ok((parts, body.to_bytes()))
        };
        let bound = EXCHANGE_TIMEOUT.min(self.patience);
        match tokio::time::timeout(bound, answer).await {
            Err(_) => Outcome::Silent(format!("no answer within {bound:?}")),
            Ok(Err(outcome)) => outcome,
            Ok(Ok((parts, body))) => match parts.status {
                StatusCode::OK => Outcome::Answer(parts.headers, body),
                status => {
                    let why = format!("{status}: {}", String::from_utf8_lossy(&body));
                    if status == StatusCode::SERVICE_UNAVAILABLE {
                        Outcome::Later(why)
                    } else {
                        Outcome::Refused(why)
                    }
                }
            },
        }
    }
}

fn parse<T: serde::de::DeserializeOwned>(
    addr: &BootstrapAddr,
    body: &[u8],
) -> Result<T, FailureReason> {
    serde_json::from_slice(body).map_err(|error| {
        FailureReason::peer(format!(
            "bootstrap server {addr} answered no route: {error}"
        ))
    })
}
