//! One worker as requests see it: its address, its gate (cordon and circuit), and what this
//! router has in flight on it, counted from the moment it is chosen.

use super::circuit::{Admission, Circuit, CircuitConfig};
use super::silence::Silence;
use crate::client::{Client, Endpoint, EndpointError};
use crate::clock::Instant;
use crate::policy::Load;
use http::HeaderValue;
use parking_lot::Mutex;
use pd_identity::Peers;
use pd_protocol::workers::WorkerSpec;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) spec: WorkerSpec,
    pub(crate) client: Client,
    /// Host that decode dials for the bootstrap server, as a JSON string.
    pub(crate) bootstrap_host_json: String,
    /// The id as answers name it.
    pub(crate) id_header: HeaderValue,
    gate: Mutex<Gate>,
    requests: AtomicU64,
    tokens: AtomicU64,
    /// A request could not reach the worker, and no probe has since.
    is_suspect: AtomicBool,
    /// It is not ready since probes had no answer.
    is_silent: watch::Sender<bool>,
    /// Wakes its prober.
    pub(super) suspected: Notify,
    /// Cancelled when the first probe has ended, well or not.
    pub(crate) probed: CancellationToken,
    /// Cancelled when the worker is removed.
    pub(super) removed: CancellationToken,
}

#[derive(Debug)]
struct Gate {
    cordoned: bool,
    circuit: Circuit,
}

/// One request's use of a worker, counted as its load until it is dropped. A lease that was not
/// settled by `succeed` or `fail` says nothing about the worker's health.
#[derive(Debug)]
pub(crate) struct Lease {
    worker: Arc<Worker>,
    tokens: u64,
    admission: Option<Admission>,
}

/// A description that no worker can have.
#[derive(Debug, thiserror::Error)]
pub enum InvalidWorker {
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    #[error("worker id {0:?} must be printable ASCII without spaces, and not empty")]
    Id(String),
}

// === impl Worker ===

impl Worker {
    /// # Errors
    /// Refuses a URL that is no worker's, one of TLS where there is no key, and an id that no header can
    /// hold.
    pub(crate) fn new(
        spec: WorkerSpec,
        circuit: CircuitConfig,
        peers: &Peers,
    ) -> Result<Self, InvalidWorker> {
        // The id becomes a header value of every answer.
        if spec.id.is_empty() || !spec.id.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(InvalidWorker::Id(spec.id));
        }
        let endpoint = Endpoint::parse(&spec.url, peers.identity().is_some())?;
        let host = spec.bootstrap_host.as_deref().unwrap_or(endpoint.host());
        let bootstrap_host_json = serde_json::Value::from(host).to_string();
        Ok(Self {
            client: Client::new(endpoint, peers),
            bootstrap_host_json,
            id_header: HeaderValue::try_from(spec.id.as_str())
                .map_err(|_| InvalidWorker::Id(spec.id.clone()))?,
            spec,
            gate: Mutex::new(Gate {
                cordoned: false,
                circuit: Circuit::new(circuit),
            }),
            requests: AtomicU64::new(0),
            tokens: AtomicU64::new(0),
            is_suspect: AtomicBool::new(false),
            is_silent: watch::Sender::new(false),
            suspected: Notify::new(),
            probed: CancellationToken::new(),
            removed: CancellationToken::new(),
        })
    }

    pub(crate) fn id(&self) -> &str {
        &self.spec.id
    }

    pub(crate) fn load(&self) -> Load {
        Load {
            tokens: self.tokens.load(Ordering::Relaxed),
            requests: self.requests.load(Ordering::Relaxed),
        }
    }

    /// Whether `lease` would succeed now.
    pub(crate) fn admits(&self, now: Instant) -> bool {
        let gate = self.gate.lock();
        !gate.cordoned && gate.circuit.admits(now)
    }

    /// Leases the worker to a request of `tokens`. Cordon takes the same lock, so a request is either
    /// counted in the cordon's answer or refused.
    pub(crate) fn lease(self: &Arc<Self>, tokens: u64, now: Instant) -> Option<Lease> {
        let mut gate = self.gate.lock();
        if gate.cordoned {
            return None;
        }
        let admission = gate.circuit.begin(now)?;
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.tokens.fetch_add(tokens, Ordering::Relaxed);
        Some(Lease {
            worker: Arc::clone(self),
            tokens,
            admission: Some(admission),
        })
    }

    pub(super) fn set_cordoned(&self, cordoned: bool) {
        self.gate.lock().cordoned = cordoned;
    }

    pub(crate) fn is_cordoned(&self) -> bool {
        self.gate.lock().cordoned
    }

    pub(crate) fn is_circuit_open(&self) -> bool {
        self.gate.lock().circuit.is_open()
    }

    pub(crate) fn is_suspect(&self) -> bool {
        self.is_suspect.load(Ordering::Relaxed)
    }

    /// A probe reached the worker; whether it was under suspicion.
    pub(crate) fn clear_suspicion(&self) -> bool {
        self.is_suspect.swap(false, Ordering::Relaxed)
    }

    pub(super) fn set_silent(&self, is_silent: bool) {
        self.is_silent.send_if_modified(|was| {
            let changed = *was != is_silent;
            *was = is_silent;
            changed
        });
    }

    /// Watches for its silence.
    pub(crate) fn silence(&self) -> Silence {
        Silence::of(self.is_silent.subscribe())
    }

    pub(super) fn reset_circuit(&self) {
        self.gate.lock().circuit.reset();
    }
}

// === impl Lease ===

impl Lease {
    pub(crate) fn worker(&self) -> &Arc<Worker> {
        &self.worker
    }

    pub(crate) fn succeed(mut self) {
        if let Some(admission) = self.admission.take() {
            self.worker.gate.lock().circuit.succeed(admission);
        }
    }

    /// The worker answered with an error of its own, or not at all.
    pub(crate) fn fail(mut self, now: Instant) {
        if let Some(admission) = self.admission.take() {
            self.worker.gate.lock().circuit.fail(admission, now);
        }
    }

    /// As `fail`, and the worker could not be reached: others are preferred until a probe, which
    /// follows at once, finds it well.
    pub(crate) fn fail_unreached(self, now: Instant) {
        self.worker.is_suspect.store(true, Ordering::Relaxed);
        self.worker.suspected.notify_one();
        self.fail(now);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.worker.requests.fetch_sub(1, Ordering::Relaxed);
        self.worker.tokens.fetch_sub(self.tokens, Ordering::Relaxed);
        if let Some(admission) = self.admission.take() {
            self.worker.gate.lock().circuit.abandon(admission);
        }
    }
}
