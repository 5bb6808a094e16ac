//! A pool of workers: its size, its revision, and the pods that each of its slots runs.

use super::args::Args;
use super::component::Component;
use super::config::BuildConfig;
use super::engines::Meeting;
use super::gang::{Gang, GangScheduler};
use super::group::{self, Family};
use super::merge::merge_template;
use super::slot::Slot;
use super::{
    devices, engines, fetch, host_network, model, neighbours, peers, placement, pod, revision,
    spans, worker_key,
};
use crate::controller::plan::Desired;
use k8s_openapi::api::core::v1::{Container, Pod, PodReadinessGate, PodSpec, Volume, VolumeMount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use pd_crds::engine::EngineArg;
use pd_crds::field::{FieldErrors, FieldPath};
use pd_crds::kv::KvDtype;
use pd_crds::pool::PoolSpec;
use pd_crds::scheduling::TopologySpec;
use pd_crds::{PdDeployment, PdDeploymentSpec, PdPool, PdPoolSpec, PoolRole};
use pd_protocol::labels;
use pd_protocol::ports::{self, WorkerPorts};
use std::iter;

/// Name of the worker's container.
pub(crate) const AGENT: &str = "agent";

/// Replicas of one role.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pool {
    pub(crate) role: PoolRole,
    pub(crate) replicas: u32,
    pub(crate) revision: String,
    /// Pods of a replica.
    pub(crate) nodes: u32,
    /// Of the addresses at which they meet.
    family: Family,
    meeting: Meeting,
    /// Who gives nodes to its gangs; none is the pods' scheduler, pod by pod.
    pub(crate) gangs: Option<GangScheduler>,
    topology: Option<TopologySpec>,
    /// The pod of every slot, but for its name and its ports.
    template: Pod,
}

/// Annotations that say what workers of a spec are made for.
fn marks(spec: &PdDeploymentSpec) -> impl Iterator<Item = (String, String)> {
    let marks = [
        (worker_key::asks_for_key(spec), labels::ASKS_FOR_KEY),
        (spec.model.weights.is_some(), labels::TAKES_WEIGHTS),
    ];
    let marks = marks.into_iter().filter(|(holds, _)| *holds);
    marks.map(|(_, name)| (name.to_owned(), "true".to_owned()))
}

/// Builds a pool of workers.
pub(crate) fn build_pool(
    deployment: &PdDeployment,
    role: PoolRole,
    config: &BuildConfig,
) -> Result<Pool, FieldErrors> {
    let component = Component::from(role);
    let path = FieldPath::new("spec.pools").child(component.as_str());
    let spec = deployment.spec.pools.of(role);
    let revision = revision::revision(&deployment.spec, component);
    let container = build_container(deployment, role, spec, config);
    let mut pod = pod::build_pod(deployment, component, &revision, container);
    let annotations = pod.metadata.annotations.get_or_insert_default();
    let scheme = peers::scheme(&deployment.spec).to_owned();
    annotations.insert(labels::SCHEME.to_owned(), scheme);
    if !deployment.spec.authenticates_peers() {
        let own = (labels::OWN_POLICY.to_owned(), "true".to_owned());
        pod.metadata.labels.get_or_insert_default().extend([own]);
    }
    let engine = engines::of(deployment.spec.engine.kind);
    annotations.extend(marks(&deployment.spec));
    if engine.has_bootstrap(role) {
        annotations.insert(
            labels::BOOTSTRAP_PORT.to_owned(),
            ports::BOOTSTRAP.to_string(),
        );
    }
    if !engine.names_kv_compat {
        let compat = revision::kv_compat(&deployment.spec);
        annotations.insert(labels::KV_COMPAT.to_owned(), compat);
    }
    let pod_spec = pod.spec.get_or_insert_default();
    if config.discovery {
        pod_spec.security_context = Some(engine.pod_security_context());
    }
    pod_spec.readiness_gates = Some(vec![PodReadinessGate {
        condition_type: labels::ROUTABLE_GATE.to_owned(),
    }]);
    let volumes: Vec<Volume> = volumes(deployment, spec, config)
        .map(|(volume, _)| volume)
        .collect();
    pod_spec.volumes = Some(volumes).filter(|volumes| !volumes.is_empty());
    pod_spec.init_containers = fetch::on_node(deployment, config).map(|fetch| vec![fetch]);
    neighbours::join(pod_spec, deployment, config);
    pod_spec.service_account_name = deployment.spec.engine.service_account_name.clone();
    if config.discovery {
        placement::keep_to_our_architecture(pod_spec, deployment.spec.engine.image.as_ref());
        if spec.may_be_several() {
            placement::spread(pod_spec, deployment, component);
        }
    }
    let mut template = merge_template(
        &pod,
        spec.pod_template.as_ref(),
        &path.child("podTemplate"),
        config.may_raise_privileges,
    )?;
    if spec.nodes > 1 {
        group::resolve_names(template.spec.get_or_insert_default());
    }
    let replicas = u32::try_from(spec.initial_replicas()).unwrap_or(0);
    Ok(Pool {
        role,
        replicas,
        revision,
        nodes: u32::try_from(spec.nodes).unwrap_or(1),
        family: Family::of(&config.site),
        meeting: engine.meeting,
        gangs: GangScheduler::choose(&deployment.spec, &config.site.gangs),
        topology: spec.topology.clone(),
        template,
    })
}

fn build_container(
    deployment: &PdDeployment,
    role: PoolRole,
    pool: &PoolSpec,
    config: &BuildConfig,
) -> Container {
    let (kind, image) = (deployment.spec.engine.kind, &deployment.spec.engine.image);
    let engine = engines::of(kind);
    let mut env = pod::identity_env();
    if engine.has_admin_api {
        env.push(pod::admin_token_env(deployment));
    }
    env.extend(pod::place_env());
    env.extend(engine.env(deployment, config));
    if engine.sends_spans {
        env.extend(spans::env(&deployment.spec));
    }
    if deployment.spec.model.source.hugging_face.is_some() {
        // All that it needs is there, and what is not there is not looked for elsewhere.
        env.push(pod::value_env("HF_HUB_OFFLINE", "1"));
    }
    let mut container_ports = vec![pod::port(pod::PORT_HTTP, i32::from(ports::HTTP))];
    if engine.has_bootstrap(role) {
        container_ports.push(pod::port(pod::PORT_BOOTSTRAP, i32::from(ports::BOOTSTRAP)));
    }
    if engine.has_admin_api {
        container_ports.push(pod::admin_port());
    }
    let mounts: Vec<VolumeMount> = volumes(deployment, pool, config)
        .map(|(_, mount)| mount)
        .collect();
    let mut security_context = engine.security_context(config);
    devices::let_hooks_write(&mut security_context, pool);
    let mut container = Container {
        name: AGENT.to_owned(),
        image: Some(image.as_ref().unwrap_or(&config.image).clone()),
        command: Some(engine.command(&deployment.spec.engine.command)),
        args: Some(build_args(deployment, role, pool, config)),
        env: Some(env),
        ports: Some(container_ports),
        resources: pool.resources.clone(),
        volume_mounts: Some(mounts).filter(|mounts| !mounts.is_empty()),
        security_context: Some(security_context),
        termination_message_policy: Some(pod::LAST_WORDS.to_owned()),
        ..Container::default()
    };
    engine.add_probes(&mut container, &deployment.spec);
    container
}

/// Flags of the worker: those that all engines have, those of its own, then the user's.
fn build_args(
    deployment: &PdDeployment,
    role: PoolRole,
    pool: &PoolSpec,
    config: &BuildConfig,
) -> Vec<String> {
    let spec = &deployment.spec;
    let engine = engines::of(spec.engine.kind);
    let names = &engine.names;
    let mut args = Args::default();
    args.flag(names.model, model::path(&spec.model));
    if let Some(weights) = &spec.model.weights {
        args.flag("weight-version", weights.version());
    }
    args.flag("served-model-name", deployment.served_model_name());
    args.flag("host", pod::POD_IP_ARG);
    args.flag("port", ports::HTTP.to_string());
    let worker = engines::Worker {
        spec,
        role,
        pool,
        config,
    };
    (engine.add_flags)(&mut args, &worker);
    if let Some(tokens) = spec.kv.page_size {
        args.flag(names.page_size, tokens.to_string());
    }
    if spec.kv.dtype != KvDtype::Auto {
        args.flag("kv-cache-dtype", spec.kv.dtype.flag());
    }
    for (name, ranks) in [
        (names.tp, pool.tp),
        (names.pp, pool.pp),
        (names.dp, pool.dp),
    ] {
        if ranks != 1 {
            args.flag(name, ranks.to_string());
        }
    }
    let inherited = spec.engine.args.iter();
    let inherited = inherited.filter(|arg| pool.args.iter().all(|own| own.name != arg.name));
    for EngineArg { name, value } in inherited.chain(&pool.args) {
        args.optional(name, value.as_deref());
    }
    args.0
}

/// Volumes of a worker, each with its place in the container.
fn volumes(
    deployment: &PdDeployment,
    pool: &PoolSpec,
    config: &BuildConfig,
) -> impl Iterator<Item = (Volume, VolumeMount)> {
    let model = model::volume(deployment);
    let peers = peers::volume(deployment, config);
    let engine = engines::of(deployment.spec.engine.kind);
    let shared_memory = devices::shared_memory(pool, engine.shares_memory && config.discovery);
    let volumes = iter::once(model).chain(shared_memory);
    volumes.chain(engine.scratch(config)).chain(peers)
}

/// The worker's own container, beside those that a template adds.
pub(super) fn agent_container(pod: &mut Pod) -> Option<&mut Container> {
    let containers = &mut pod.spec.as_mut()?.containers;
    containers
        .iter_mut()
        .find(|container| container.name == AGENT)
}

// === impl Pool ===

impl Pool {
    /// The pool's own object, whose size others may change.
    pub(crate) fn object(&self, deployment: &PdDeployment) -> PdPool {
        let component = Component::from(self.role);
        let spec = PdPoolSpec {
            deployment: deployment.name_any(),
            role: self.role,
            replicas: i32::try_from(self.replicas).unwrap_or(i32::MAX),
        };
        PdPool {
            metadata: component.metadata(deployment, component.object_name(deployment)),
            spec,
            status: None,
        }
    }

    /// What is wanted of the pool where it has a size of `replicas`.
    pub(crate) fn desired(&self, spec: &PdDeploymentSpec, replicas: u32) -> Desired {
        let rollout = &spec.rollout;
        let count = |number| u32::try_from(number).unwrap_or(0);
        Desired {
            component: self.role.into(),
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
        self.pod_of(slot, ports, None)
    }

    /// The same, of a gang.
    pub(crate) fn pod_of(&self, slot: Slot, ports: WorkerPorts, gang: Option<&Gang>) -> Pod {
        let mut pod = self.template.clone();
        pod.metadata.name = Some(self.pod_name(slot));
        host_network::take_ports(&mut pod, ports, self.meeting);
        group::lead(&mut pod, self.nodes, self.family, ports);
        self.place(&mut pod, gang);
        pod
    }

    /// The pod of a node beyond the first, which meets its leader.
    pub(crate) fn follower(&self, leader: &ObjectMeta, rank: u32, ports: WorkerPorts) -> Pod {
        let mut pod = self.template.clone();
        host_network::take_ports(&mut pod, ports, self.meeting);
        group::follow(&mut pod, leader, rank, self.nodes);
        self.place(&mut pod, Gang::of(leader).as_ref());
        pod
    }

    /// Says with which other pods, and how close to them, a pod gets its node.
    fn place(&self, pod: &mut Pod, gang: Option<&Gang>) {
        if let Some(topology) = &self.topology {
            placement::keep_together(pod, topology);
        }
        if let Some(gang) = gang {
            gang.take_in(pod, self.gangs.as_ref());
        }
    }

    /// What its pods are, with what a `podTemplate` says.
    pub(super) fn template_spec(&self) -> Option<&PodSpec> {
        self.template.spec.as_ref()
    }

    /// The image of its workers.
    pub(crate) fn image(&self) -> Option<&str> {
        let spec = self.template_spec()?;
        let agent = spec.containers.iter().find(|is| is.name == AGENT)?;
        agent.image.as_deref()
    }

    /// Whether its pods share their node's addresses, so that each needs ports of its own.
    pub(crate) fn shares_host_network(&self) -> bool {
        let spec = self.template_spec();
        spec.is_some_and(|spec| spec.host_network == Some(true))
    }
}
