//! Who the workers are and in which state: added, cordoned and removed by the admin API, made
//! ready and unready by health checks. Holds no I/O; every change makes a new [`Fleet`].

use super::circuit::CircuitConfig;
use super::fleet::Fleet;
use super::info::WorkerInfo;
use super::worker::{InvalidWorker, Worker};
use crate::policy::Load;
use parking_lot::Mutex;
use pd_identity::Peers;
use pd_protocol::workers::{WorkerSpec, WorkerState, WorkerStatus};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;

pub(crate) struct Registry {
    circuit: CircuitConfig,
    peers: Peers,
    entries: Mutex<BTreeMap<String, Entry>>,
    fleet: watch::Sender<Arc<Fleet>>,
}

struct Entry {
    worker: Arc<Worker>,
    /// What the worker said of itself, while it is ready.
    info: Option<WorkerInfo>,
    /// Its models, as it said last.
    models: Vec<String>,
    reason: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    #[error("no worker {0:?} is registered; GET /workers lists those that are")]
    Unknown(String),
    #[error("worker {id:?} is registered already as the {role} worker {url}; remove it first")]
    Conflict {
        id: String,
        role: String,
        url: String,
    },
    #[error(transparent)]
    Invalid(#[from] InvalidWorker),
}

/// Result of adding a worker that was not there before.
pub(crate) enum Registered {
    New(Arc<Worker>),
    /// The same worker was registered already.
    Known,
}

// === impl Registry ===

impl Registry {
    pub(crate) fn new(circuit: CircuitConfig, peers: Peers) -> Self {
        Self {
            circuit,
            peers,
            entries: Mutex::new(BTreeMap::new()),
            fleet: watch::Sender::default(),
        }
    }

    pub(crate) fn fleet(&self) -> Arc<Fleet> {
        Arc::clone(&self.fleet.borrow())
    }

    /// Sees every change from now on by which a worker may have come that takes a request.
    pub(crate) fn changes(&self) -> watch::Receiver<Arc<Fleet>> {
        self.fleet.subscribe()
    }

    /// Adds a worker, unready until a probe finds it well.
    ///
    /// # Errors
    /// Refuses a malformed URL or id, and an id that another worker has.
    pub(crate) fn register(&self, spec: WorkerSpec) -> Result<Registered, RegistryError> {
        let mut entries = self.entries.lock();
        if let Some(known) = entries.get(&spec.id) {
            let known = &known.worker.spec;
            if *known == spec {
                return Ok(Registered::Known);
            }
            return Err(RegistryError::Conflict {
                id: spec.id,
                role: format!("{:?}", known.role).to_lowercase(),
                url: known.url.clone(),
            });
        }
        let worker = Worker::new(spec, self.circuit.clone(), &self.peers)?;
        if self.peers.identity().is_some() && !worker.client.is_tls() {
            tracing::info!(
                worker = worker.id(),
                url = worker.spec.url,
                "adding a worker without TLS"
            );
        }
        let worker = Arc::new(worker);
        let entry = Entry {
            worker: Arc::clone(&worker),
            info: None,
            models: Vec::new(),
            reason: Some("not probed yet".to_owned()),
        };
        entries.insert(worker.id().to_owned(), entry);
        Ok(Registered::New(worker))
    }

    /// After this returns no new request goes to the worker.
    ///
    /// # Errors
    /// `Unknown`.
    pub(crate) fn set_cordoned(
        &self,
        id: &str,
        cordoned: bool,
    ) -> Result<WorkerStatus, RegistryError> {
        let mut entries = self.entries.lock();
        let entry = find(&mut entries, id)?;
        entry.worker.set_cordoned(cordoned);
        let status = entry.status();
        self.rebuild(&entries);
        Ok(status)
    }

    /// Cordons the worker and forgets it; what it has in flight goes on.
    ///
    /// # Errors
    /// `Unknown`.
    pub(crate) fn remove(&self, id: &str) -> Result<WorkerStatus, RegistryError> {
        let mut entries = self.entries.lock();
        let entry = find(&mut entries, id)?;
        entry.worker.set_cordoned(true);
        entry.worker.removed.cancel();
        let status = entry.status();
        entries.remove(id);
        self.rebuild(&entries);
        Ok(status)
    }

    /// A probe found `worker` well, and this is what it says of itself.
    pub(crate) fn set_ready(&self, worker: &Arc<Worker>, info: WorkerInfo) {
        self.update(worker, |entry| {
            let restarted = entry
                .info
                .as_ref()
                .is_some_and(|known| known.boot_id != info.boot_id);
            if entry.info.is_none() || restarted {
                entry.worker.reset_circuit();
            }
            let changed = entry.info.as_ref() != Some(&info);
            entry.models.clone_from(&info.models);
            entry.info = Some(info);
            entry.reason = None;
            changed
        });
    }

    /// A probe reached `worker`; requests that could not may try again.
    pub(crate) fn clear_suspicion(&self, worker: &Worker) {
        if worker.clear_suspicion() {
            self.fleet.send_modify(|_| {});
        }
    }

    /// Asks each worker now what it serves.
    pub(crate) fn probe_all(&self) {
        let entries = self.entries.lock();
        let workers = entries.values();
        workers.for_each(|entry| entry.worker.suspected.notify_one());
    }

    pub(crate) fn set_unready(&self, worker: &Arc<Worker>, reason: String) {
        self.update(worker, |entry| {
            entry.reason = Some(reason);
            entry.info.take().is_some()
        });
    }

    /// # Errors
    /// `Unknown`.
    pub(crate) fn status(&self, id: &str) -> Result<WorkerStatus, RegistryError> {
        Ok(find(&mut self.entries.lock(), id)?.status())
    }

    pub(crate) fn list(&self) -> Vec<WorkerStatus> {
        self.entries.lock().values().map(Entry::status).collect()
    }

    pub(crate) fn workers(&self) -> Vec<Arc<Worker>> {
        let entries = self.entries.lock();
        let workers = entries.values().map(|entry| Arc::clone(&entry.worker));
        workers.collect()
    }

    /// Every worker with what it has in flight.
    pub(crate) fn loads(&self) -> Vec<(WorkerStatus, Load)> {
        let entries = self.entries.lock();
        let loads = entries
            .values()
            .map(|entry| (entry.status(), entry.worker.load()));
        loads.collect()
    }

    /// Changes the entry of `worker`, unless it was removed, also if another took its id since.
    fn update(&self, worker: &Arc<Worker>, change: impl FnOnce(&mut Entry) -> bool) {
        let mut entries = self.entries.lock();
        let entry = entries.get_mut(worker.id());
        if let Some(entry) = entry.filter(|entry| Arc::ptr_eq(&entry.worker, worker))
            && change(entry)
        {
            self.rebuild(&entries);
        }
    }

    fn rebuild(&self, entries: &BTreeMap<String, Entry>) {
        let ready = entries
            .values()
            .filter(|entry| !entry.worker.is_cordoned())
            .filter_map(|entry| Some((&entry.worker, entry.info.as_ref()?)));
        let known = entries.values().map(|entry| &*entry.models);
        self.fleet
            .send_replace(Arc::new(Fleet::build(ready, known)));
    }
}

fn find<'a>(
    entries: &'a mut BTreeMap<String, Entry>,
    id: &str,
) -> Result<&'a mut Entry, RegistryError> {
    entries
        .get_mut(id)
        .ok_or_else(|| RegistryError::Unknown(id.to_owned()))
}

// === impl Entry ===

impl Entry {
    fn status(&self) -> WorkerStatus {
        let circuit_open = self.worker.is_circuit_open();
        let info = self.info.as_ref();
        let state = match (self.worker.is_cordoned(), info) {
            (true, _) => WorkerState::Cordoned,
            (false, None) => WorkerState::Unready,
            (false, Some(_)) => WorkerState::Serving,
        };
        let circuit_reason = || circuit_open.then(|| "its last requests failed".to_owned());
        WorkerStatus {
            spec: self.worker.spec.clone(),
            state,
            circuit_open,
            in_flight: self.worker.load().requests,
            kv_compat: info.and_then(|info| info.kv_compat.clone()),
            boot_id: info.and_then(|info| info.boot_id.clone()),
            weights: info.and_then(|info| info.weights.clone()),
            reason: self.reason.clone().or_else(circuit_reason),
        }
    }
}

#[cfg(test)]
mod tests;
