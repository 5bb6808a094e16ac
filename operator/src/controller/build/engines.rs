//! What differs by engine, each in a file of its own: everything else of a worker's pod is the same for all of them. A process
//! on this machine is confined as its user is, and has that user's home.

mod pdserve;
mod sglang;
mod vllm;

use super::args::Args;
use super::component::Component;
use super::config::BuildConfig;
use super::pod;
use super::worker_key::{self, TakesKey};
use k8s_openapi::api::core::v1::{
    Container, EmptyDirVolumeSource, EnvVar, PodSecurityContext, Probe, SecurityContext, Volume,
    VolumeMount,
};
use pd_crds::engine::EngineKind;
use pd_crds::pool::PoolSpec;
use pd_crds::{PdDeployment, PdDeploymentSpec, PoolRole};
use pd_protocol::ports;

/// SGLang's, which pd-agent has, too.
const SGLANG_NAMES: FlagNames = FlagNames {
    model: "model-path",
    page_size: "page-size",
    tp: "tp-size",
    pp: "pp-size",
    dp: "dp-size",
};

/// Where an engine that writes outside of its model has room, and its home.
const SCRATCH: &str = "/tmp";
const SCRATCH_VOLUME: &str = "scratch";

/// How the operator runs an engine.
pub(super) struct Engine {
    /// The program, and the words before its flags.
    pub(super) command: &'static [&'static str],
    /// What it calls the flags that all have.
    pub(super) names: FlagNames,
    /// Adds the flags that the others do not have, or have by other rules.
    pub(super) add_flags: fn(&mut Args, &Worker<'_>),
    /// Variables of its containers.
    pub(super) env: &'static [(&'static str, &'static str)],
    pub(super) probes: Probes,
    /// How decode finds a prompt's KV on prefill.
    pub(super) meeting: Meeting,
    /// Whether its image is made to run without root and to write to its volumes only.
    pub(super) is_confined: bool,
    /// Whether its ranks meet in shared memory also where they have no GPUs.
    pub(super) shares_memory: bool,
    /// How it is given the key that its HTTP API asks for.
    pub(super) takes_key: TakesKey,
    /// Whether it sends spans of its requests where OpenTelemetry's variables say.
    pub(super) sends_spans: bool,
    /// Whether it has an admin API, through which it drains.
    pub(super) has_admin_api: bool,
    /// Whether its workers say what their KV means, so that only those that agree are paired.
    pub(super) names_kv_compat: bool,
}

pub(super) struct FlagNames {
    pub(super) model: &'static str,
    pub(super) page_size: &'static str,
    pub(super) tp: &'static str,
    pub(super) pp: &'static str,
    pub(super) dp: &'static str,
}

/// What a worker's flags are made from.
#[derive(Clone, Copy)]
pub(super) struct Worker<'a> {
    pub(super) spec: &'a PdDeploymentSpec,
    pub(super) role: PoolRole,
    pub(super) pool: &'a PoolSpec,
    pub(super) config: &'a BuildConfig,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meeting {
    /// At prefill's bootstrap server, where a flag of SGLang's says.
    Bootstrap,
    /// At each worker's own port, where a variable says.
    SideChannel { variable: &'static str, port: u16 },
}

/// How kubelet sees whether a worker starts, serves and lives.
pub(super) struct Probes {
    pub(super) startup: Check,
    pub(super) readiness: Check,
    pub(super) liveness: Check,
}

/// Failed after so many failures in a row.
pub(super) struct Check {
    pub(super) asks: Asks,
    pub(super) period_seconds: i32,
    pub(super) timeout_seconds: i32,
    pub(super) failures: i32,
}

#[derive(Clone, Copy)]
pub(super) enum Asks {
    /// For 200 at a path of its HTTP API.
    Path(&'static str),
    /// For a connection to that.
    Port,
}

pub(super) fn of(kind: EngineKind) -> &'static Engine {
    match kind {
        EngineKind::Pdserve => &pdserve::ENGINE,
        EngineKind::Sglang => &sglang::ENGINE,
        EngineKind::Vllm => &vllm::ENGINE,
    }
}

// === impl Engine ===

impl Engine {
    /// The program and the words before its flags: the user's, or its own.
    pub(super) fn command(&self, given: &[String]) -> Vec<String> {
        if given.is_empty() {
            let own = self.command.iter();
            return own.map(|word| (*word).to_owned()).collect();
        }
        given.to_vec()
    }

    pub(super) fn env(
        &self,
        deployment: &PdDeployment,
        config: &BuildConfig,
    ) -> impl Iterator<Item = EnvVar> {
        let home = self.has_scratch(config).then_some(&("HOME", SCRATCH));
        let env = home.into_iter().chain(self.env);
        let env = env.map(|(name, value)| pod::value_env(name, value));
        let meeting = match self.meeting {
            Meeting::Bootstrap => None,
            Meeting::SideChannel { variable, port } => {
                Some(pod::value_env(variable, &port.to_string()))
            }
        };
        env.chain(meeting)
            .chain(worker_key::engine_env(self, deployment))
    }

    /// Whether decode asks a worker of this role for its peers.
    pub(super) fn has_bootstrap(&self, role: PoolRole) -> bool {
        self.meeting == Meeting::Bootstrap && role == PoolRole::Prefill
    }

    fn has_scratch(&self, config: &BuildConfig) -> bool {
        config.discovery && !self.is_confined
    }

    /// Of its container. What an image needs that expects root is taken back, and no more.
    pub(super) fn security_context(&self, config: &BuildConfig) -> SecurityContext {
        let mut context = pod::security_context();
        if self.has_scratch(config) {
            context.run_as_non_root = None;
            context.read_only_root_filesystem = None;
        }
        context
    }

    /// Of its pod on a cluster.
    pub(super) fn pod_security_context(&self) -> PodSecurityContext {
        let mut context = pod::pod_security_context();
        if !self.is_confined {
            context.run_as_non_root = None;
        }
        context
    }

    /// Room to write, and its home: compiled kernels, and what Hugging Face's libraries keep.
    pub(super) fn scratch(&self, config: &BuildConfig) -> Option<(Volume, VolumeMount)> {
        let volume = Volume {
            name: SCRATCH_VOLUME.to_owned(),
            empty_dir: Some(EmptyDirVolumeSource::default()),
            ..Volume::default()
        };
        let mount = VolumeMount {
            name: SCRATCH_VOLUME.to_owned(),
            mount_path: SCRATCH.to_owned(),
            ..VolumeMount::default()
        };
        self.has_scratch(config).then_some((volume, mount))
    }

    pub(super) fn add_probes(&self, container: &mut Container, spec: &PdDeploymentSpec) {
        let Probes {
            startup,
            readiness,
            liveness,
        } = &self.probes;
        container.startup_probe = Some(startup.probe(spec));
        container.readiness_probe = Some(readiness.probe(spec));
        container.liveness_probe = Some(liveness.probe(spec));
    }
}

// === impl Worker ===

impl Worker<'_> {
    /// Whether the user gives a flag.
    fn has_arg(&self, name: &str) -> bool {
        let mut given = self.spec.engine.args.iter().chain(&self.pool.args);
        given.any(|arg| arg.name == name)
    }

    /// SGLang's flags of a worker's part, which pd-agent has, too.
    fn add_disaggregation(&self, args: &mut Args) {
        args.flag("disaggregation-mode", Component::from(self.role).as_str());
        if self.role == PoolRole::Prefill {
            let port = ports::BOOTSTRAP.to_string();
            args.flag("disaggregation-bootstrap-port", port);
        }
    }
}

// === impl Check ===

impl Check {
    fn probe(&self, spec: &PdDeploymentSpec) -> Probe {
        let probe = match self.asks {
            Asks::Path(path) => pod::http_probe(path, self.period_seconds, self.failures),
            Asks::Port => pod::tcp_probe(self.period_seconds, self.failures),
        };
        let probe = Probe {
            timeout_seconds: Some(self.timeout_seconds),
            ..probe
        };
        super::peers::probe_api(probe, spec)
    }
}
