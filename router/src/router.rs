//! The router's state, shared by all requests: its parts side by side, each with its own lock or
//! none.

use crate::api_keys::ApiKeys;
use crate::body_limit::BodyLimit;
use crate::clock::{Instant, sleep_until};
use crate::config::Config;
use crate::cors::CorsOrigins;
use crate::headers::RequestIds;
use crate::metrics::{Gauges, Metrics};
use crate::pause::Pause;
use crate::queue::{AdmissionPermit, Queue};
use crate::retry::RetryConfig;
use crate::rooms::Rooms;
use crate::route::{Chooser, Demand, NoRoute, Route};
use crate::timeline::Timeline;
use crate::vitals::Vitals;
use crate::workers::health::{self, Prober};
use crate::workers::registry::Registered;
use crate::workers::{Registry, RegistryError};
use pd_http::BodyBudget;
use pd_identity::Peers;
use pd_protocol::Secret;
use pd_protocol::workers::{DispatchStatus, WorkerSpec, WorkerStatus};
use pd_spans::Spans;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

pub struct Router {
    pub(crate) registry: Arc<Registry>,
    pub(crate) queue: Queue,
    pub(crate) rooms: Rooms,
    pub(crate) timeline: Timeline,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) retry: RetryConfig,
    pub(crate) request_timeout: Duration,
    pub(crate) body_bytes_max: usize,
    pub(crate) body_budget: BodyBudget,
    pub(crate) api_keys: ApiKeys,
    pub(crate) admin_token: Option<Secret>,
    pub(crate) cors: Arc<CorsOrigins>,
    pub(crate) request_ids: RequestIds,
    pub(crate) vitals: Vitals,
    /// Of each request, where they are traced.
    pub(crate) spans: Option<Spans>,
    /// Cancelled when the router begins to drain.
    pub(crate) draining: CancellationToken,
    chooser: Chooser,
    pause: Pause,
    prober: Arc<Prober>,
    /// Discovery has seen every worker there is.
    is_synced: AtomicBool,
}

// === impl Router ===

impl Router {
    /// The router of `config`, with no worker yet.
    pub(crate) fn new(
        config: &Config,
        api_keys: ApiKeys,
        metrics: Arc<Metrics>,
        vitals: Vitals,
        peers: Peers,
        spans: Option<Spans>,
    ) -> Arc<Self> {
        let authorization = api_keys.authorization().cloned();
        let prober = Prober::new(config.health.clone(), authorization);
        Arc::new(Self {
            registry: Arc::new(Registry::new(config.circuit.clone(), peers)),
            queue: Queue::new(config.queue.clone()),
            rooms: Rooms::default(),
            timeline: Timeline::default(),
            metrics,
            retry: config.retry.clone(),
            request_timeout: config.request_timeout,
            body_bytes_max: config.body_bytes_max,
            body_budget: BodyBudget::new(config.bodies_bytes_max),
            api_keys,
            admin_token: config.admin_token.clone(),
            cors: Arc::new(config.cors.clone()),
            request_ids: config.request_ids.clone(),
            vitals,
            spans,
            draining: CancellationToken::new(),
            chooser: Chooser::new(config.policies),
            pause: Pause::default(),
            prober: Arc::new(prober),
            is_synced: AtomicBool::new(false),
        })
    }

    /// Sends the spans of requests that have ended. Blocks for some seconds at most.
    pub(crate) fn flush_spans(&self) {
        if let Some(spans) = &self.spans {
            spans.flush();
        }
    }

    /// Adds a worker and begins to probe it. Adding the same one again changes nothing.
    ///
    /// # Errors
    /// What the registry refuses.
    pub fn add_worker(&self, spec: WorkerSpec) -> Result<WorkerStatus, RegistryError> {
        let id = spec.id.clone();
        if let Registered::New(worker) = self.registry.register(spec)? {
            let registry = Arc::clone(&self.registry);
            let prober = Arc::clone(&self.prober);
            let watch = health::watch(registry, worker, prober);
            self.spawn("probes of a worker", watch);
        }
        self.worker(&id)
    }

    /// # Errors
    /// The worker is not registered.
    pub fn worker(&self, id: &str) -> Result<WorkerStatus, RegistryError> {
        self.registry.status(id)
    }

    pub fn workers(&self) -> Vec<WorkerStatus> {
        self.registry.list()
    }

    /// After this returns with `cordoned` no new request goes to the worker.
    ///
    /// # Errors
    /// The worker is not registered.
    pub fn set_cordoned(&self, id: &str, cordoned: bool) -> Result<WorkerStatus, RegistryError> {
        self.registry.set_cordoned(id, cordoned)
    }

    /// After this returns no request goes to any worker, but for repeats of those in flight, for as long as said, or until
    /// [`Self::resume`].
    pub fn pause(self: &Arc<Self>, lasts: Duration) -> DispatchStatus {
        let pauses = || {
            self.queue.set_paused(true);
            self.resize_queue();
        };
        if self.pause.hold(lasts, pauses) {
            tracing::info!("dispatching is paused; requests wait");
            let router = Arc::clone(self);
            self.spawn("end of a pause", async move {
                while let Some(until) = router.pause.until().filter(|until| *until > Instant::now())
                {
                    sleep_until(until).await;
                }
                router.resume_if(|until| until <= Instant::now());
            });
        }
        self.dispatch_status()
    }

    /// Sends requests to workers again, of whom it asks at once what they serve.
    pub fn resume(&self) -> DispatchStatus {
        self.resume_if(|_| true);
        self.dispatch_status()
    }

    fn resume_if(&self, may: impl FnOnce(Instant) -> bool) {
        self.pause.end(may, || {
            self.registry.probe_all();
            self.queue.set_paused(false);
            self.resize_queue();
            tracing::info!("dispatching goes on");
        });
    }

    pub fn dispatch_status(&self) -> DispatchStatus {
        let ms = |held: Duration| u64::try_from(held.as_millis()).unwrap_or(u64::MAX);
        DispatchStatus {
            paused_ms: self.pause.held().map(ms),
            in_flight: self.in_flight() as u64,
            waiting: self.waiting() as u64,
        }
    }

    /// Cordons the worker and forgets it; what it has in flight goes on.
    ///
    /// # Errors
    /// The worker is not registered.
    pub fn remove_worker(&self, id: &str) -> Result<WorkerStatus, RegistryError> {
        self.registry.remove(id)
    }

    /// Runs a task that every request depends on: when it panics, the router drains and ends.
    pub fn spawn(&self, task: &'static str, run: impl Future<Output = ()> + Send + 'static) {
        self.vitals.spawn(task, run);
    }

    /// Requests in flight now.
    pub fn in_flight(&self) -> usize {
        self.queue.in_flight()
    }

    /// Permits that are free, and all there are.
    pub fn permits(&self) -> (usize, usize) {
        self.resize_queue();
        self.queue.permits()
    }

    /// Requests that wait for a permit or a worker.
    pub fn waiting(&self) -> usize {
        self.queue.waiting()
    }

    /// Requests that hold rooms.
    pub fn with_rooms(&self) -> usize {
        self.rooms.len()
    }

    /// A permit to be in flight, if one is free.
    pub(crate) fn try_acquire(&self) -> Option<AdmissionPermit> {
        self.resize_queue();
        self.queue.try_acquire()
    }

    pub(crate) fn body_limit(&self) -> BodyLimit {
        BodyLimit::new(self.body_bytes_max, self.registry.fleet().body_bytes_max)
    }

    /// Makes the queue's bound that of the workers there are.
    pub(crate) fn resize_queue(&self) {
        self.queue.resize(|| self.registry.fleet().running_max);
    }

    /// Leases of workers that can serve the demand, by the policies of their pools.
    ///
    /// # Errors
    /// Why no worker can.
    pub(crate) fn choose(&self, demand: &Demand<'_>) -> Result<Route, NoRoute> {
        let fleet = self.registry.fleet();
        self.chooser.choose(&fleet, demand, &mut rand::rng())
    }

    /// Whether new requests are welcome. A router that discovers its workers is ready once it has
    /// seen them all, so that clients hear from it what is missing; others when they can serve.
    pub fn is_ready(&self) -> bool {
        !self.is_draining() && (self.is_synced.load(Ordering::Relaxed) || self.is_routable())
    }

    /// Whether a pair or a unified worker is ready.
    pub fn is_routable(&self) -> bool {
        self.registry.fleet().is_routable()
    }

    pub(crate) fn set_synced(&self) {
        self.is_synced.store(true, Ordering::Relaxed);
    }

    pub fn is_draining(&self) -> bool {
        self.draining.is_cancelled()
    }

    pub(crate) fn begin_draining(&self) {
        self.draining.cancel();
    }

    pub(crate) fn metrics_text(&self) -> Vec<u8> {
        self.resize_queue();
        let gauges = Gauges {
            in_flight: self.in_flight(),
            in_flight_max: self.queue.in_flight_max(),
            queue_waiting: self.waiting(),
            rooms: self.with_rooms(),
        };
        self.metrics.text(&self.registry.loads(), gauges)
    }
}

impl fmt::Debug for Router {
    /// Leaves the secrets out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Router")
            .field("queue", &self.queue)
            .field("rooms", &self.rooms)
            .finish_non_exhaustive()
    }
}
