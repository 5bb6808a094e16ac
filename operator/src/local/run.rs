//! The loop of the local runtime: reconciles until a signal, then the shutdown.

use super::address;
use super::apply::ApplyError;
use super::cache::{self, CacheError, StateFile};
use super::console::Console;
use super::fleet::{Fleet, FleetConfig};
use super::launch::dialable;
use super::model;
use super::observe::observe;
use super::scaler::Scaler;
use super::signals::Signals;
use super::status::{LocalPhase, LocalStatus};
use super::target::{Target, TargetError, is_ready};
use super::watch::WatchedFile;
use super::weights::Weights;
use crate::controller::plan::{Action, Observed};
use crate::decide::{Decided, decide_steps};
use pd_identity::{Identity, KeyFileError, Peers};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

/// Between two reconciles while something moves, and while nothing does.
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
    Target(#[from] TargetError),
    #[error("metadata.name and metadata.namespace stay as they are while it runs; stop it first")]
    Renamed,
    #[error(transparent)]
    Cache(#[from] CacheError),
    #[error(transparent)]
    PeerKeys(#[from] KeyFileError),
    #[error(transparent)]
    Apply(#[from] ApplyError),
    #[error("{pod}: {reason}; its own lines above say why")]
    Ended { pod: String, reason: String },
    #[error("cannot catch signals: {0}")]
    Signals(std::io::Error),
    #[error("no free port on {address}: {source}")]
    NoPort {
        address: IpAddr,
        source: std::io::Error,
    },
    #[error("stopped at once, without a drain")]
    Killed,
}

struct Runtime {
    config: LocalConfig,
    target: Target,
    fleet: Fleet,
    scaler: Scaler,
    weights: Weights,
    file: WatchedFile,
    file_error: Option<String>,
    state_file: StateFile,
    last_status: Option<LocalStatus>,
    phase: LocalPhase,
    moving_since: Instant,
    /// Everything wanted has served once: from then on nothing but a signal ends it.
    has_been_ready: bool,
    /// The last step that failed, so that one trouble is printed once.
    trouble: Option<String>,
}

/// Runs a deployment until a signal, or with `once` until it is ready; then drains and ends it.
pub(crate) async fn run(config: LocalConfig) -> Result<(), RunError> {
    let mut signals = Signals::new().map_err(RunError::Signals)?;
    tokio::select! {
        fetched = model::fetch(&config.file, Console::new()) => fetched?,
        () = signals.next() => return Ok(()),
    }
    let mut runtime = Runtime::new(config)?;
    let result = runtime.serve(&mut signals).await;
    let stopped = runtime.stop(&mut signals).await;
    result.and(stopped)
}

// === impl LocalConfig ===

impl LocalConfig {
    /// What the file wants now.
    fn read_target(&self) -> Result<Target, TargetError> {
        Target::read(&self.file, self.listen, &self.programs, &self.cache)
    }
}

// === impl Runtime ===

impl Runtime {
    fn new(mut config: LocalConfig) -> Result<Self, RunError> {
        config.listen = config.listen.map(choose_port).transpose()?;
        let file = WatchedFile::new(&config.file);
        let target = config.read_target()?;
        let (namespace, name) = target.identity();
        let state_file = StateFile::take(&config.cache, &namespace, &name)?;
        state_file.ensure_peer_keys()?;
        let key_file = cache::peer_key_file(&config.cache, &namespace, &name);
        let (identity, follow_keys) = Identity::follow(key_file, drop)?;
        // It ends with the identity, and so with the fleet.
        tokio::spawn(follow_keys);
        let fleet = Fleet::new(FleetConfig {
            namespace,
            name,
            programs: config.programs.clone(),
            admin_token: config.admin_token.clone(),
            admin_secret: target.admin_secret(),
            worker_secret: target.worker_secret(),
            peers: Peers::Tls(identity),
            console: Console::new(),
            wake: Arc::new(Notify::new()),
        });
        Ok(Self {
            config,
            target,
            fleet,
            scaler: Scaler::new(),
            weights: Weights::default(),
            file,
            file_error: None,
            state_file,
            last_status: None,
            phase: LocalPhase::Progressing,
            moving_since: Instant::now(),
            has_been_ready: false,
            trouble: None,
        })
    }

    async fn serve(&mut self, signals: &mut Signals) -> Result<(), RunError> {
        loop {
            self.take_edit();
            let desired = self.scaler.desired(&self.target);
            let mut observed = self.observe().await;
            let (fleet, spec) = (&self.fleet, self.target.spec());
            self.scaler.observe(fleet, spec, &mut observed).await;
            let scaler = Some(self.scaler.inner());
            let decided = decide_steps(spec, &desired, &observed, scaler);
            self.write(&decided).await?;
            self.weights.follow(&self.fleet, self.target.spec()).await;
            let settled = decided.steps.is_empty() && self.weights.is_settled();
            self.settle(settled && is_ready(&desired, &observed));
            self.write_status()?;
            if self.config.once {
                if self.has_been_ready {
                    return Ok(());
                }
                self.fail_on_exit()?;
            }
            let settled = self.phase == LocalPhase::Ready && !self.file.is_being_edited();
            let pause = if settled { PAUSE_SETTLED } else { PAUSE_MOVING };
            let wake = Arc::clone(&self.fleet.wake);
            tokio::select! {
                () = signals.next() => return Ok(()),
                _ = timeout(pause, wake.notified()) => {}
            }
        }
    }

    async fn observe(&mut self) -> Observed {
        let seconds = u64::try_from(self.target.spec().drain.timeout_seconds).unwrap_or(0);
        self.fleet.drain_limit = Duration::from_secs(seconds);
        self.fleet.listen = self.listen();
        observe(&mut self.fleet).await
    }

    /// Carries out what was decided. A step that fails is decided again by the next reconcile; only what keeps everything
    /// from ever starting is an error.
    async fn write(&mut self, decided: &Decided) -> Result<(), RunError> {
        let mut trouble = None;
        for action in &decided.steps {
            let result = self.fleet.apply(action, &self.target.resources).await;
            let Err(error) = result else { continue };
            if matches!(action, Action::Create { .. }) && !self.has_been_ready {
                return Err(error.into());
            }
            trouble = Some(error.to_string());
        }
        if trouble.is_some() && trouble != self.trouble {
            let message = trouble.as_deref().unwrap_or_default();
            self.fleet
                .console
                .progress(&format!("{message}; tries again"));
        }
        self.trouble = trouble;
        if let Some(decision) = &decided.scaling {
            if decision.change().is_some() {
                self.fleet.console.progress(&decision.message());
            }
            self.scaler.follow(decision);
        }
        Ok(())
    }

    /// Takes over an edit of the file, or says why not and keeps what runs.
    fn take_edit(&mut self) {
        if !self.file.take_edit() {
            return;
        }
        let read = self.config.read_target().map_err(RunError::from);
        let edited = read.and_then(|target| {
            let same = target.identity() == self.target.identity();
            if same {
                Ok(target)
            } else {
                Err(RunError::Renamed)
            }
        });
        let file = self.config.file.display();
        let console = self.fleet.console;
        match edited {
            Ok(target) => {
                console.progress(&format!("{file} changed"));
                self.target = target;
                self.file_error = None;
                self.phase = LocalPhase::Progressing;
                self.moving_since = Instant::now();
            }
            Err(error) => {
                console.progress(&format!("{file} changed, but what ran goes on: {error}"));
                self.file_error = Some(error.to_string());
            }
        }
    }

    /// Says so when everything wanted serves.
    fn settle(&mut self, ready: bool) {
        let was_ready = self.phase == LocalPhase::Ready;
        if ready && !was_ready {
            let seconds = self.moving_since.elapsed().as_secs_f64();
            let endpoint = self.endpoint();
            let console = self.fleet.console;
            console.progress(&format!("Ready in {seconds:.1} s: {endpoint}/v1"));
            if !self.has_been_ready {
                console.hint(&self.first_steps(&endpoint));
            }
            self.has_been_ready = true;
        } else if !ready && was_ready {
            self.moving_since = Instant::now();
        }
        self.phase = if ready {
            LocalPhase::Ready
        } else {
            LocalPhase::Progressing
        };
    }

    /// What a person may do now: ask, edit, stop.
    fn first_steps(&self, endpoint: &str) -> String {
        let model = self.target.valid.deployment().served_model_name();
        let file = self.config.file.display();
        format!(
            "\n  curl -N {endpoint}/v1/chat/completions -H 'content-type: application/json' -d \\\n  \
             '{{\"model\": \"{model}\", \"stream\": true, \"messages\": [{{\"role\": \"user\", \
             \"content\": \"Why is the sky blue?\"}}]}}'\n\nEdit {file} while it runs; Ctrl-C drains and \
             stops it.\n"
        )
    }

    fn write_status(&mut self) -> Result<(), CacheError> {
        let (namespace, name) = self.target.identity();
        let status = LocalStatus {
            name,
            namespace,
            file: self.config.file.display().to_string(),
            operator_pid: std::process::id(),
            endpoint: self.endpoint(),
            phase: self.phase,
            file_error: self.file_error.clone(),
            pods: self.fleet.statuses(),
            scaling: self.scaler.status(self.target.spec().autoscaling.mode),
        };
        if self.last_status.as_ref() != Some(&status) {
            let json = serde_json::to_vec_pretty(&status).expect("a status serializes to JSON");
            self.state_file.write(&json)?;
            self.last_status = Some(status);
        }
        Ok(())
    }

    /// With `--once` a process that ends before all are ready is the answer.
    fn fail_on_exit(&self) -> Result<(), RunError> {
        let restarted = self
            .fleet
            .statuses()
            .into_iter()
            .find(|pod| pod.restarts > 0);
        let ended = |pod: super::status::PodStatus| {
            let reason = pod.reason.unwrap_or_default();
            Err(RunError::Ended {
                pod: pod.name,
                reason,
            })
        };
        restarted.map_or(Ok(()), ended)
    }

    /// Ends everything: the router first, so that streams finish through it, then workers. A
    /// second signal ends the rest at once.
    async fn stop(&mut self, signals: &mut Signals) -> Result<(), RunError> {
        self.phase = LocalPhase::Stopping;
        let console = self.fleet.console;
        console.progress("stops: requests in flight finish; Ctrl-C again ends them at once");
        let mut killed = false;
        while !self.fleet.entries.is_empty() {
            let desired = self.target.desired_at_stop(&self.fleet);
            let observed = self.observe().await;
            let decided = decide_steps(self.target.spec(), &desired, &observed, None);
            self.write(&decided).await?;
            // A status that cannot be written must not keep processes from being ended.
            let _written = self.write_status();
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

    /// Where the router serves clients.
    fn listen(&self) -> SocketAddr {
        let ip = self
            .config
            .listen
            .map_or(Ipv4Addr::LOCALHOST.into(), |listen| listen.ip());
        SocketAddr::new(
            ip,
            u16::try_from(self.target.spec().router.port).unwrap_or(0),
        )
    }

    fn endpoint(&self) -> String {
        let listen = self.listen();
        format!(
            "http://{}",
            SocketAddr::new(dialable(listen.ip()), listen.port())
        )
    }
}

/// Port 0 asks for any free one.
fn choose_port(listen: SocketAddr) -> Result<SocketAddr, RunError> {
    if listen.port() != 0 {
        return Ok(listen);
    }
    address::choose_port(listen.ip()).map_err(|source| RunError::NoPort {
        address: listen.ip(),
        source,
    })
}
