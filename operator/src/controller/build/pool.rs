//! A pool of workers: its size, its revision, and the pods that each of its slots runs.

use super::component::Component;
use super::group;
use super::merge::merge_template;
use super::{BuildConfig, host_network, pod, revision};
use crate::controller::plan::Desired;
use k8s_openapi::api::core::v1::{
    Container, EmptyDirVolumeSource, HostPathVolumeSource, ImageVolumeSource,
    PersistentVolumeClaimVolumeSource, Pod, PodReadinessGate, Volume, VolumeMount,
};
use kube::ResourceExt;
use pd_crds::engine::{EngineArg, EngineKind};
use pd_crds::field::{FieldErrors, FieldPath};
use pd_crds::kv::KvDtype;
use pd_crds::model::ModelSource;
use pd_crds::pool::PoolSpec;
use pd_crds::{PdDeployment, PdDeploymentSpec, PdPool, PdPoolSpec, PoolRole};
use pd_protocol::labels;
use pd_protocol::ports::{self, WorkerPorts};
use std::net::SocketAddr;

/// Name of the worker's container.
pub(crate) const AGENT: &str = "agent";
/// Where a model lies in the container that comes from a volume of its own.
const MODEL_MOUNT: &str = "/model";
pub(super) const MODEL_VOLUME: &str = "model";
const SHARED_MEMORY: &str = "/dev/shm";
const SHARED_MEMORY_VOLUME: &str = "shared-memory";
/// The resource that NVIDIA's device plugin offers.
const GPU: &str = "nvidia.com/gpu";

/// Startup failures, one a second, before a worker counts as stuck: half an hour for large weights.
const STARTUP_FAILURES_MAX: i32 = 1800;

/// Replicas of one role.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pool {
    pub(crate) component: Component,
    pub(crate) replicas: u32,
    pub(crate) revision: String,
    /// Pods of a replica.
    pub(crate) nodes: u32,
    /// The pod of every slot, but for its name and its ports.
    template: Pod,
}

/// A place in a pool. A pod that takes the place of another is its next incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Slot {
    pub(crate) ordinal: u32,
    pub(crate) incarnation: u32,
}

/// Builds a pool of workers.
pub(crate) fn build_pool(
    deployment: &PdDeployment,
    component: Component,
    config: &BuildConfig,
) -> Result<Pool, FieldErrors> {
    let path = FieldPath::new("spec.pools").child(component.as_str());
    let spec = pool_spec(deployment, component);
    let revision = revision::revision(&deployment.spec, component);
    let container = build_container(deployment, component, spec, config);
    let mut pod = pod::build_pod(deployment, component, &revision, container);
    if component == Component::Prefill {
        let annotations = pod.metadata.annotations.get_or_insert_default();
        annotations.insert(
            labels::BOOTSTRAP_PORT.to_owned(),
            ports::BOOTSTRAP.to_string(),
        );
    }
    let pod_spec = pod.spec.get_or_insert_default();
    pod_spec.readiness_gates = Some(vec![PodReadinessGate {
        condition_type: labels::ROUTABLE_GATE.to_owned(),
    }]);
    pod_spec.volumes = Some(volumes(deployment, spec)).filter(|volumes| !volumes.is_empty());
    let template = merge_template(
        &pod,
        spec.pod_template.as_ref(),
        &path.child("podTemplate"),
        config.may_raise_privileges,
    )?;
    let replicas = u32::try_from(spec.initial_replicas()).unwrap_or(0);
    Ok(Pool {
        component,
        replicas,
        revision,
        nodes: u32::try_from(spec.nodes).unwrap_or(1),
        template,
    })
}

fn pool_spec(deployment: &PdDeployment, component: Component) -> &PoolSpec {
    match component {
        Component::Prefill => &deployment.spec.pools.prefill,
        Component::Decode | Component::Router => &deployment.spec.pools.decode,
    }
}

fn build_container(
    deployment: &PdDeployment,
    component: Component,
    pool: &PoolSpec,
    config: &BuildConfig,
) -> Container {
    let engine = &deployment.spec.engine;
    let source = &deployment.spec.model.source;
    let command = match engine.kind {
        EngineKind::Pdserve => vec!["pd-agent"],
        EngineKind::Sglang => vec!["python3", "-m", "sglang.launch_server"],
    };
    let mut env = pod::identity_env(deployment);
    env.extend(pod::place_env());
    if let Some(token) = source
        .hugging_face
        .as_ref()
        .and_then(|s| s.token_secret_ref.as_ref())
    {
        env.push(pod::secret_env("HF_TOKEN", token.name.clone(), &token.key));
    }
    let mut container_ports = vec![pod::port(pod::PORT_HTTP, i32::from(ports::HTTP))];
    if component == Component::Prefill {
        container_ports.push(pod::port(pod::PORT_BOOTSTRAP, i32::from(ports::BOOTSTRAP)));
    }
    if engine.kind == EngineKind::Pdserve {
        container_ports.push(pod::admin_port());
    }
    Container {
        name: AGENT.to_owned(),
        image: Some(engine.image.clone().unwrap_or_else(|| config.image.clone())),
        command: Some(command.into_iter().map(str::to_owned).collect()),
        args: Some(build_args(deployment, component, pool)),
        env: Some(env),
        ports: Some(container_ports),
        resources: pool.resources.clone(),
        volume_mounts: Some(mounts(deployment, pool)).filter(|mounts| !mounts.is_empty()),
        startup_probe: Some(pod::http_probe("/health", 1, STARTUP_FAILURES_MAX)),
        readiness_probe: Some(pod::http_probe("/health", 2, 3)),
        liveness_probe: Some(pod::http_probe("/health", 10, 6)),
        security_context: Some(pod::security_context()),
        termination_message_policy: Some(pod::LAST_WORDS.to_owned()),
        ..Container::default()
    }
}

/// Flags of the worker: the operator's, then the engine's and the pool's of the user.
fn build_args(deployment: &PdDeployment, component: Component, pool: &PoolSpec) -> Vec<String> {
    let spec = &deployment.spec;
    let mut args = Args::default();
    args.flag("model-path", model_path(&spec.model.source));
    if let Some(revision) = spec
        .model
        .source
        .hugging_face
        .as_ref()
        .and_then(|s| s.revision.clone())
    {
        args.flag("revision", revision);
    }
    args.flag("served-model-name", deployment.served_model_name());
    args.flag("host", pod::POD_IP_ARG);
    args.flag("port", ports::HTTP.to_string());
    args.flag("disaggregation-mode", component.as_str());
    if component == Component::Prefill {
        args.flag(
            "disaggregation-bootstrap-port",
            ports::BOOTSTRAP.to_string(),
        );
    }
    let ours = spec.engine.kind == EngineKind::Pdserve;
    if ours {
        args.flag("admin-port", ports::ADMIN.to_string());
        args.flag("drain-timeout-secs", spec.drain.timeout_seconds.to_string());
    }
    let transport = spec.kv.transport.flag();
    if ours || transport != "auto" {
        args.flag("disaggregation-transfer-backend", transport);
    }
    args.flag("page-size", spec.kv.page_size.to_string());
    if spec.kv.dtype != KvDtype::Auto {
        args.flag("kv-cache-dtype", spec.kv.dtype.flag());
    }
    for (name, ranks) in [
        ("tp-size", pool.tp),
        ("pp-size", pool.pp),
        ("dp-size", pool.dp),
    ] {
        if ranks != 1 {
            args.flag(name, ranks.to_string());
        }
    }
    let inherited = spec.engine.args.iter();
    for EngineArg { name, value } in inherited
        .filter(|arg| pool.args.iter().all(|own| own.name != arg.name))
        .chain(&pool.args)
    {
        args.optional(name, value.as_deref());
    }
    args.0
}

/// A `hostPath` is mounted where it lies on the node, so that a path means the same inside.
fn model_path(source: &ModelSource) -> String {
    let ModelSource {
        host_path,
        pvc,
        hugging_face,
        image,
    } = source;
    let inside = |path: Option<&String>| match path {
        Some(path) => format!("{MODEL_MOUNT}/{path}"),
        None => MODEL_MOUNT.to_owned(),
    };
    match (host_path, hugging_face) {
        (Some(host_path), _) => host_path.path.clone(),
        (None, Some(hugging_face)) => hugging_face.repo.clone(),
        (None, None) => inside(
            pvc.as_ref()
                .and_then(|pvc| pvc.path.as_ref())
                .or(image.as_ref().and_then(|image| image.path.as_ref())),
        ),
    }
}

fn volumes(deployment: &PdDeployment, pool: &PoolSpec) -> Vec<Volume> {
    let source = &deployment.spec.model.source;
    let model = source.hugging_face.is_none().then(|| model_volume(source));
    let shared_memory = shares_memory(pool).then(|| Volume {
        name: SHARED_MEMORY_VOLUME.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource {
            medium: Some("Memory".to_owned()),
            size_limit: None,
        }),
        ..Volume::default()
    });
    model.into_iter().chain(shared_memory).collect()
}

fn mounts(deployment: &PdDeployment, pool: &PoolSpec) -> Vec<VolumeMount> {
    let source = &deployment.spec.model.source;
    let model = source.hugging_face.is_none().then(|| model_mount(source));
    let shared_memory = shares_memory(pool).then(|| VolumeMount {
        name: SHARED_MEMORY_VOLUME.to_owned(),
        mount_path: SHARED_MEMORY.to_owned(),
        ..VolumeMount::default()
    });
    model.into_iter().chain(shared_memory).collect()
}

/// Ranks of a GPU worker meet in shared memory, and the 64 MB that a container has by itself are too
/// few for them. It counts as the pod's memory.
fn shares_memory(pool: &PoolSpec) -> bool {
    let resources = pool.resources.as_ref();
    let limits = resources.and_then(|resources| resources.limits.as_ref());
    limits.is_some_and(|limits| limits.contains_key(GPU))
}

fn model_volume(source: &ModelSource) -> Volume {
    let ModelSource {
        host_path,
        pvc,
        hugging_face: _,
        image,
    } = source;
    Volume {
        name: MODEL_VOLUME.to_owned(),
        host_path: host_path.as_ref().map(|source| HostPathVolumeSource {
            path: source.path.clone(),
            type_: None,
        }),
        persistent_volume_claim: pvc.as_ref().map(|pvc| PersistentVolumeClaimVolumeSource {
            claim_name: pvc.claim_name.clone(),
            read_only: Some(true),
        }),
        image: image.as_ref().map(|image| ImageVolumeSource {
            reference: Some(image.reference.clone()),
            pull_policy: None,
        }),
        ..Volume::default()
    }
}

fn model_mount(source: &ModelSource) -> VolumeMount {
    let host_path = source.host_path.as_ref().map(|source| source.path.clone());
    VolumeMount {
        name: MODEL_VOLUME.to_owned(),
        mount_path: host_path.unwrap_or_else(|| MODEL_MOUNT.to_owned()),
        read_only: Some(true),
        ..VolumeMount::default()
    }
}

/// The worker's own container, beside those that a template adds.
pub(super) fn agent_container(pod: &mut Pod) -> Option<&mut Container> {
    let containers = &mut pod.spec.as_mut()?.containers;
    containers
        .iter_mut()
        .find(|container| container.name == AGENT)
}

/// Flags as a command line has them.
#[derive(Default)]
pub(crate) struct Args(pub(crate) Vec<String>);

// === impl Args ===

impl Args {
    pub(crate) fn flag(&mut self, name: &str, value: impl Into<String>) {
        self.0.extend([format!("--{name}"), value.into()]);
    }

    pub(crate) fn switch(&mut self, name: &str) {
        self.0.push(format!("--{name}"));
    }

    /// Gives a flag another value, or adds it.
    pub(crate) fn set(&mut self, name: &str, value: impl Into<String>) {
        let flag = format!("--{name}");
        let at = self.0.iter().position(|arg| *arg == flag);
        match at.and_then(|at| self.0.get_mut(at + 1)) {
            Some(old) => *old = value.into(),
            None => self.flag(name, value),
        }
    }

    fn optional(&mut self, name: &str, value: Option<&str>) {
        match value {
            Some(value) => self.flag(name, value),
            None => self.switch(name),
        }
    }
}

// === impl Pool ===

impl Pool {
    /// The pool's own object, whose size others may change.
    pub(crate) fn object(&self, deployment: &PdDeployment) -> PdPool {
        let role = match self.component {
            Component::Prefill => PoolRole::Prefill,
            Component::Decode | Component::Router => PoolRole::Decode,
        };
        let spec = PdPoolSpec {
            deployment: deployment.name_any(),
            role,
            replicas: i32::try_from(self.replicas).unwrap_or(i32::MAX),
        };
        PdPool {
            metadata: self
                .component
                .metadata(deployment, self.component.object_name(deployment)),
            spec,
            status: None,
        }
    }

    /// What is wanted of the pool where it has a size of `replicas`.
    pub(crate) fn desired(&self, spec: &PdDeploymentSpec, replicas: u32) -> Desired {
        let rollout = &spec.rollout;
        let count = |number| u32::try_from(number).unwrap_or(0);
        Desired {
            component: self.component,
            replicas: if spec.suspend { 0 } else { replicas },
            revision: self.revision.clone(),
            surge: count(rollout.max_surge),
            unavailable: count(rollout.max_unavailable),
            paused: rollout.paused,
            nodes: self.nodes,
        }
    }

    pub(crate) fn pod_name(&self, slot: Slot) -> String {
        slot.pod_name(&self.template.name_any())
    }

    /// The pod of a slot; of several, their leader. Its name is a function of the slot, so that
    /// creating it twice collides.
    pub(crate) fn pod(&self, slot: Slot, ports: WorkerPorts) -> Pod {
        let mut pod = self.template.clone();
        pod.metadata.name = Some(self.pod_name(slot));
        host_network::take_ports(&mut pod, ports);
        if self.nodes > 1 {
            group::lead(&mut pod, self.nodes, ports);
        }
        pod
    }

    /// The pod of a node beyond the first, which joins its leader there.
    pub(crate) fn follower(
        &self,
        leader: &Pod,
        rank: u32,
        meet_at: SocketAddr,
        ports: WorkerPorts,
    ) -> Pod {
        let mut pod = self.template.clone();
        host_network::take_ports(&mut pod, ports);
        group::follow(&mut pod, leader, rank, self.nodes, meet_at);
        pod
    }

    /// The image of its workers.
    pub(crate) fn image(&self) -> Option<&str> {
        let spec = self.template.spec.as_ref()?;
        let agent = spec.containers.iter().find(|is| is.name == AGENT)?;
        agent.image.as_deref()
    }

    /// Whether its pods share their node's addresses, so that each needs ports of its own.
    pub(crate) fn shares_host_network(&self) -> bool {
        let spec = self.template.spec.as_ref();
        spec.is_some_and(|spec| spec.host_network == Some(true))
    }
}

// === impl Slot ===

impl Slot {
    /// Reads a pod's name back; nothing if it is not one of `base`'s.
    pub(crate) fn of_pod(base: &str, name: &str) -> Option<Self> {
        let (ordinal, incarnation) = name
            .strip_prefix(base)?
            .strip_prefix('-')?
            .split_once('-')?;
        Some(Self {
            ordinal: ordinal.parse().ok()?,
            incarnation: incarnation.parse().ok()?,
        })
    }

    pub(crate) fn pod_name(self, base: &str) -> String {
        format!("{base}-{}-{}", self.ordinal, self.incarnation)
    }
}
