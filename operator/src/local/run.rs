//! The loop of the local runtime: passes until it is told to stop, then the way out.

use super::apply::{ApplyError, Fleet, FleetConfig};
use super::cache::{CacheError, StateFile};
use super::console::Console;
use super::observe::observe;
use super::plan::{Action, Desired, Observed, plan};
use super::process::Phase;
use super::status::{LocalPhase, LocalStatus, PodStatus};
use super::{address, launch};
use crate::controller::build::component::Component;
use crate::controller::build::{self, BuildConfig, Resources, pod};
use crate::controller::dereference::{self, DereferenceError};
use crate::controller::validate::{self, Valid};
use kube::ResourceExt;
use pd_crds::field::FieldErrors;
use pd_protocol::ports;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

/// Pause between passes while something moves, and while nothing does.
const PAUSE_MOVING: Duration = Duration::from_millis(25);
const PAUSE_SETTLED: Duration = Duration::from_millis(500);

/// What the command line asks for.
#[derive(Clone, Debug)]
pub(crate) struct LocalConfig {
    pub(crate) file: PathBuf,
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) once: bool,
    pub(crate) cache: PathBuf,
    pub(crate) programs: PathBuf,
    pub(crate) admin_token: String,
}

/// Why a deployment does not run on this machine.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    #[error(transparent)]
    Dereference(#[from] DereferenceError),
    #[error("{file} cannot run on this machine:\n{source}")]
    Invalid { file: PathBuf, source: FieldErrors },
    #[error("metadata.name and metadata.namespace stay as they are while it runs; stop it first")]
    Renamed,
    #[error(transparent)]
    Cache(#[from] CacheError),
    #[error(transparent)]
    Apply(#[from] ApplyError),
    #[error("{pod}: {reason}")]
    Ended { pod: String, reason: String },
    #[error("cannot catch signals: {0}")]
    Signals(std::io::Error),
    #[error("stopped at once, without a drain")]
    Killed,
}

/// Objects of the file's last good state.
struct Target {
    valid: Valid,
    resources: Resources,
}

struct Runtime {
    config: LocalConfig,
    build: BuildConfig,
    target: Target,
    fleet: Fleet,
    state_file: StateFile,
    /// The file as it was read last, good or not.
    file_seen: Option<Vec<u8>>,
    file_error: Option<String>,
    phase: LocalPhase,
    moving_since: Instant,
    last_written: Vec<u8>,
}

/// Runs a deployment until a signal, or with `once` until it is ready; then drains and ends it.
pub(crate) async fn run(config: LocalConfig) -> Result<(), RunError> {
    let mut signals = Signals::new().map_err(RunError::Signals)?;
    let mut runtime = Runtime::new(config)?;
    let result = runtime.serve(&mut signals).await;
    let stopped = runtime.stop(&mut signals).await;
    result.and(stopped)
}

// === impl Runtime ===

impl Runtime {
    fn new(config: LocalConfig) -> Result<Self, RunError> {
        let file_seen = std::fs::read(&config.file).ok();
        let listen = config
            .listen
            .map_or(Ipv4Addr::LOCALHOST.into(), |listen| listen.ip());
        let build = BuildConfig {
            router_admin_port: choose_admin_port(listen),
            ..BuildConfig::default()
        };
        let target = read_target(&config, &build)?;
        let deployment = target.valid.deployment();
        let (namespace, name) = identity(&target);
        let state_file = StateFile::take(&config.cache, &namespace, &name)?;
        let fleet = Fleet::new(FleetConfig {
            namespace,
            name,
            listen,
            programs: config.programs.clone(),
            admin_token: config.admin_token.clone(),
            admin_secret: (
                pod::admin_secret(deployment),
                pod::ADMIN_SECRET_KEY.to_owned(),
            ),
            console: Console::new(),
            wake: Arc::new(Notify::new()),
        });
        Ok(Self {
            config,
            build,
            target,
            fleet,
            state_file,
            file_seen,
            file_error: None,
            phase: LocalPhase::Progressing,
            moving_since: Instant::now(),
            last_written: Vec::new(),
        })
    }

    async fn serve(&mut self, signals: &mut Signals) -> Result<(), RunError> {
        loop {
            self.read_file();
            let desired = desired(&self.target);
            let (observed, actions) = self.pass(&desired).await?;
            let ready = is_ready(&desired, &observed);
            self.settle(ready && actions.is_empty())?;
            if self.config.once {
                if ready {
                    return Ok(());
                }
                self.fail_on_exit()?;
            }
            let settled = self.phase == LocalPhase::Ready;
            let pause = if settled { PAUSE_SETTLED } else { PAUSE_MOVING };
            let wake = Arc::clone(&self.fleet.wake);
            tokio::select! {
                () = signals.next() => return Ok(()),
                _ = timeout(pause, wake.notified()) => {}
            }
        }
    }

    /// One pass. What cannot be created is an error only before anything runs.
    async fn pass(&mut self, desired: &[Desired]) -> Result<(Observed, Vec<Action>), RunError> {
        let spec = &self.target.valid.deployment().spec;
        let drain_seconds = u64::try_from(spec.drain.timeout_seconds).unwrap_or(0);
        self.fleet.drain_limit = Duration::from_secs(drain_seconds);
        let observed = observe(&mut self.fleet).await;
        let actions = plan(desired, &observed);
        for action in &actions {
            let result = self.fleet.apply(action, &self.target.resources).await;
            match (result, action) {
                (Ok(()), _) => {}
                (Err(error), Action::Create { .. }) if self.phase != LocalPhase::Stopping => {
                    return Err(error.into());
                }
                (Err(error), _) => tracing::warn!(%error, ?action, "a step failed; tried again"),
            }
        }
        Ok((observed, actions))
    }

    /// Takes over an edit of the file, or says why not and keeps what runs.
    fn read_file(&mut self) {
        let Ok(text) = std::fs::read(&self.config.file) else {
            return;
        };
        if self.file_seen.as_ref() == Some(&text) {
            return;
        }
        self.file_seen = Some(text);
        let edited = read_target(&self.config, &self.build).and_then(|target| {
            if identity(&target) == identity(&self.target) {
                Ok(target)
            } else {
                Err(RunError::Renamed)
            }
        });
        let file = self.config.file.display();
        match edited {
            Ok(target) => {
                self.fleet.console.progress(&format!("{file} changed"));
                self.target = target;
                self.file_error = None;
                self.phase = LocalPhase::Progressing;
                self.moving_since = Instant::now();
            }
            Err(error) => {
                let message = format!("{file} changed, but what ran before goes on: {error}");
                self.fleet.console.progress(&message);
                self.file_error = Some(error.to_string());
            }
        }
    }

    /// Says so when everything wanted serves, and keeps the state file.
    fn settle(&mut self, settled: bool) -> Result<(), RunError> {
        if settled && self.phase == LocalPhase::Progressing {
            self.phase = LocalPhase::Ready;
            let seconds = self.moving_since.elapsed().as_secs_f64();
            let endpoint = self.endpoint();
            self.fleet
                .console
                .progress(&format!("Ready in {seconds:.1} s: {endpoint}/v1"));
        } else if !settled && self.phase == LocalPhase::Ready {
            self.phase = LocalPhase::Progressing;
            self.moving_since = Instant::now();
        }
        self.write_status()
    }

    fn write_status(&mut self) -> Result<(), RunError> {
        let status = self.status();
        let bytes = serde_json::to_vec_pretty(&status).expect("a status serializes to JSON");
        if bytes != self.last_written {
            self.state_file.write(&bytes)?;
            self.last_written = bytes;
        }
        Ok(())
    }

    /// With `--once` a process that ends before all are ready is the answer.
    fn fail_on_exit(&self) -> Result<(), RunError> {
        for (name, entry) in &self.fleet.entries {
            let state = entry.process.state();
            if state.restarts > 0 {
                let reason = state.reason.unwrap_or_default();
                return Err(RunError::Ended {
                    pod: name.clone(),
                    reason,
                });
            }
        }
        Ok(())
    }

    /// Ends everything: routers first, so that streams finish through them, then workers. A second
    /// signal ends the rest at once.
    async fn stop(&mut self, signals: &mut Signals) -> Result<(), RunError> {
        self.phase = LocalPhase::Stopping;
        if !self.fleet.entries.is_empty() {
            self.fleet
                .console
                .progress("stops: requests in flight finish; Ctrl-C again ends them");
        }
        let mut killed = false;
        while !self.fleet.entries.is_empty() {
            let desired = stopping(desired(&self.target), &self.fleet);
            self.pass(&desired).await?;
            self.write_status()?;
            let wake = Arc::clone(&self.fleet.wake);
            tokio::select! {
                () = signals.next() => {
                    self.fleet.kill();
                    killed = true;
                }
                _ = timeout(PAUSE_MOVING, wake.notified()) => {}
            }
        }
        if killed {
            Err(RunError::Killed)
        } else {
            Ok(())
        }
    }

    fn endpoint(&self) -> String {
        let port = self.target.valid.deployment().spec.router.port;
        let address = launch::dialable(self.fleet.listen);
        match address {
            IpAddr::V4(address) => format!("http://{address}:{port}"),
            IpAddr::V6(address) => format!("http://[{address}]:{port}"),
        }
    }

    fn status(&self) -> LocalStatus {
        let (namespace, name) = identity(&self.target);
        let pods = self.fleet.entries.iter().map(|(name, entry)| {
            let state = entry.process.state();
            let word = match (&entry.leaving, state.phase, entry.routable) {
                (Some(leaving), _, _) if leaving.terminated => "Ending",
                (Some(_), _, _) => "Draining",
                (None, Phase::Starting, _) => "Starting",
                (None, Phase::Ready, true) => "Ready",
                (None, Phase::Ready, false) => "Unrouted",
                (None, Phase::Unready, _) => "Unready",
                (None, Phase::BackOff, _) => "BackOff",
                (None, Phase::Ended, _) => "Ended",
            };
            PodStatus {
                name: name.clone(),
                component: entry.component.as_str().to_owned(),
                state: word.to_owned(),
                address: entry.address.to_string(),
                url: entry.url.clone(),
                admin_url: entry.admin_url.clone(),
                pid: state.pid,
                restarts: state.restarts,
                revision: entry.revision.clone(),
                reason: state.reason,
            }
        });
        LocalStatus {
            name,
            namespace,
            file: self.config.file.display().to_string(),
            operator_pid: std::process::id(),
            endpoint: self.endpoint(),
            phase: self.phase,
            file_error: self.file_error.clone(),
            pods: pods.collect(),
        }
    }
}

/// File → dereference → validate → build.
fn read_target(config: &LocalConfig, build: &BuildConfig) -> Result<Target, RunError> {
    let dereferenced = dereference::file(&config.file, config.listen)?;
    let invalid = |source| RunError::Invalid {
        file: config.file.clone(),
        source,
    };
    let valid = validate::for_this_machine(dereferenced).map_err(invalid)?;
    let resources = build::build(&valid, build).map_err(invalid)?;
    Ok(Target { valid, resources })
}

fn identity(target: &Target) -> (String, String) {
    let deployment = target.valid.deployment();
    let namespace = deployment
        .namespace()
        .unwrap_or_else(|| "default".to_owned());
    (namespace, deployment.name_any())
}

/// What the target wants of each component. Routers cannot surge: two would need one address.
fn desired(target: &Target) -> Vec<Desired> {
    let Resources {
        prefill,
        decode,
        router,
        service: _,
    } = &target.resources;
    let rollout = &target.valid.deployment().spec.rollout;
    let count = |number: i32| u32::try_from(number).unwrap_or(0);
    let router_spec = router.spec.as_ref();
    let template = router_spec.and_then(|spec| spec.template.metadata.as_ref());
    let revision = template.and_then(|metadata| {
        metadata
            .labels
            .as_ref()?
            .get(pd_protocol::labels::REVISION)
            .cloned()
    });
    let routers = Desired {
        component: Component::Router,
        replicas: count(router_spec.and_then(|spec| spec.replicas).unwrap_or(1)),
        revision: revision.unwrap_or_default(),
        surge: 0,
        unavailable: 1,
        paused: rollout.paused,
    };
    let pools = [prefill, decode].map(|pool| Desired {
        component: pool.component,
        replicas: pool.replicas,
        revision: pool.revision.clone(),
        surge: count(rollout.max_surge),
        unavailable: count(rollout.max_unavailable),
        paused: rollout.paused,
    });
    std::iter::once(routers).chain(pools).collect()
}

/// Nothing is wanted any more; of workers only once no router is left to send them anything.
fn stopping(desired: Vec<Desired>, fleet: &Fleet) -> Vec<Desired> {
    let routed = fleet
        .entries
        .values()
        .any(|entry| entry.component == Component::Router);
    desired
        .into_iter()
        .filter(|pool| pool.component == Component::Router || !routed)
        .map(|pool| Desired {
            replicas: 0,
            ..pool
        })
        .collect()
}

/// Whether every pod that is wanted serves, and no other is there.
fn is_ready(desired: &[Desired], observed: &Observed) -> bool {
    desired.iter().all(|pool| {
        let of_pool = observed
            .pods
            .iter()
            .filter(|pod| pod.component == pool.component);
        let (good, rest): (Vec<_>, Vec<_>) =
            of_pool.partition(|pod| pod.revision == pool.revision && pod.serves());
        good.len() == pool.replicas as usize && rest.is_empty()
    })
}

/// The well-known port, or any free one where another deployment's router has it.
fn choose_admin_port(listen: IpAddr) -> u16 {
    if address::is_free(SocketAddr::new(listen, ports::ADMIN)) {
        return ports::ADMIN;
    }
    let any = std::net::TcpListener::bind(SocketAddr::new(listen, 0));
    let port = any
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port());
    port.unwrap_or(ports::ADMIN)
}

/// Ctrl-C and SIGTERM.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

// === impl Signals ===

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
