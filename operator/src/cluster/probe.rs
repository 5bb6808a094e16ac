//! Has a new worker move KV with a peer before it counts: one token, over the pair's real path.
//!
//! A worker can pass its own health checks and still reach no peer: another fabric, a firewall, a
//! NIC without its link. Its readiness gate then must not latch, or a rollout would go on and take
//! the workers away that do serve.

use crate::http_client::{CallError, HttpClient};
use futures::future::try_join;
use http::{Method, Uri};
use parking_lot::Mutex;
use pd_protocol::workers::{Role, WorkerSpec, WorkerStatus};
use pd_protocol::{BootstrapRoom, ports};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A busy worker answers when it is a probe's turn.
const LIMIT: Duration = Duration::from_secs(30);
/// Pause after a probe that failed.
const AGAIN_AFTER: Duration = Duration::from_secs(5);
/// Tokens of the probe's prompt. Every vocabulary has a token 0.
const PROMPT_LEN: usize = 8;

/// How far a worker's probe has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Probed {
    /// Not yet at its end.
    Runs,
    /// KV arrived, or there is no peer whose KV means the same.
    Passed,
    /// What went wrong, with whom.
    Failed(String),
}

/// Probes of workers whose gate has not latched yet.
pub(crate) struct Probes {
    client: HttpClient,
    by_worker: Arc<Mutex<HashMap<String, Probe>>>,
}

/// Of one pod, under its UID.
#[derive(Debug)]
struct Probe {
    outcome: Probed,
    ended: Option<Instant>,
    /// Probes begun; the next one takes the next peer, for the fault may be the peer's.
    attempts: usize,
}

/// Two workers whose KV means the same.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pair {
    prefill: WorkerSpec,
    decode: WorkerSpec,
}

// === impl Probes ===

impl Probes {
    pub(crate) fn new() -> Self {
        Self {
            // Workers take requests without a token: who may reach them is the network's to say.
            client: HttpClient::new(String::new()),
            by_worker: Arc::default(),
        }
    }

    /// How far the probe of `worker`, the pod of UID `uid`, has come; begins one if none runs.
    pub(crate) fn probe(&self, uid: &str, worker: &WorkerStatus, all: &[WorkerStatus]) -> Probed {
        let mut by_worker = self.by_worker.lock();
        let known = by_worker.get(uid);
        let pauses = |probe: &Probe| probe.ended.is_some_and(|at| at.elapsed() < AGAIN_AFTER);
        match known.map(|probe| &probe.outcome) {
            Some(outcome @ (Probed::Runs | Probed::Passed)) => return outcome.clone(),
            Some(outcome @ Probed::Failed(_)) if known.is_some_and(pauses) => {
                return outcome.clone();
            }
            Some(Probed::Failed(_)) | None => {}
        }
        let attempts = known.map_or(0, |probe| probe.attempts);
        let last = known.map(|probe| probe.outcome.clone());
        let Some(pair) = pair(worker, all, attempts) else {
            // The first of its kind: whoever comes next probes with it.
            return Probed::Passed;
        };
        let probe = Probe {
            outcome: Probed::Runs,
            ended: None,
            attempts: attempts + 1,
        };
        by_worker.insert(uid.to_owned(), probe);
        drop(by_worker);
        self.start(uid.to_owned(), pair);
        // A failure stays in sight until the next probe has another word.
        last.unwrap_or(Probed::Runs)
    }

    fn start(&self, uid: String, pair: Pair) {
        let (client, by_worker) = (self.client.clone(), Arc::clone(&self.by_worker));
        tokio::spawn(async move {
            let outcome = match send_token(&client, &pair).await {
                Ok(()) => Probed::Passed,
                Err(error) => {
                    let Pair { prefill, decode } = &pair;
                    let (from, to) = (&prefill.id, &decode.id);
                    tracing::warn!(from, to, %error, "no KV arrived");
                    Probed::Failed(format!("no KV from {from} to {to}: {error}"))
                }
            };
            if let Some(probe) = by_worker.lock().get_mut(&uid) {
                probe.outcome = outcome;
                probe.ended = Some(Instant::now());
            }
        });
    }

    /// Forgets a worker whose gate has latched, or that is gone.
    pub(crate) fn forget(&self, uid: &str) {
        self.by_worker.lock().remove(uid);
    }
}

/// A worker with the `nr`th of the peers that can tell whether its KV arrives.
fn pair(worker: &WorkerStatus, all: &[WorkerStatus], nr: usize) -> Option<Pair> {
    let is_peer = |other: &&WorkerStatus| {
        let roles = (worker.spec.role, other.spec.role);
        matches!(
            roles,
            (Role::Prefill, Role::Decode) | (Role::Decode, Role::Prefill)
        ) && worker.kv_compat.is_some()
            && other.kv_compat == worker.kv_compat
    };
    let peers: Vec<&WorkerStatus> = all.iter().filter(is_peer).collect();
    let peer = peers.get(nr.checked_rem(peers.len())?)?;
    let (prefill, decode) = match worker.spec.role {
        Role::Prefill => (worker, *peer),
        Role::Decode | Role::Null => (*peer, worker),
    };
    Some(Pair {
        prefill: prefill.spec.clone(),
        decode: decode.spec.clone(),
    })
}

/// Asks both for one token, as a router does.
async fn send_token(client: &HttpClient, pair: &Pair) -> Result<(), CallError> {
    let body = request(pair, BootstrapRoom::from_random(rand::random(), 1)).to_string();
    let ask = |worker: &WorkerSpec| {
        let (url, body) = (
            format!("{}/generate", worker.url),
            body.clone().into_bytes(),
        );
        async move {
            client
                .call::<Value>(Method::POST, &url, Some(body), LIMIT)
                .await
        }
    };
    try_join(ask(&pair.prefill), ask(&pair.decode)).await?;
    Ok(())
}

fn request(pair: &Pair, room: BootstrapRoom) -> Value {
    let prefill = &pair.prefill;
    let uri: Option<Uri> = prefill.url.parse().ok();
    let own_host = || Some(uri?.host()?.to_owned());
    json!({
        "input_ids": vec![0; PROMPT_LEN],
        "sampling_params": {"max_new_tokens": 1, "temperature": 0, "ignore_eos": true},
        "bootstrap_host": prefill.bootstrap_host.clone().or_else(own_host),
        "bootstrap_port": prefill.bootstrap_port.unwrap_or(ports::BOOTSTRAP),
        "bootstrap_room": room,
    })
}

#[cfg(test)]
mod tests;
