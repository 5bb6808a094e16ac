//! How a deployment's model comes from the hub. To a volume, by one pod: it holds no GPU, is started again until all is
//! there, and ends with the commit in its last words. To nodes, by a first container of each worker, since only with the
//! worker is its node known; the one pod then only asks which commit is meant.

use super::args::Args;
use super::component;
use super::config::BuildConfig;
use super::model;
use super::placement;
use super::pod;
use super::pool::Pool;
use super::revision;
use k8s_openapi::api::core::v1::{
    Container, EnvVar, PersistentVolumeClaimVolumeSource, Pod, PodSpec, ResourceRequirements,
    Toleration, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt;
use pd_crds::PdDeployment;
use pd_crds::model::{CachePlace, HuggingFaceSource};
use pd_crds::pool::GPU;
use pd_protocol::ports;
use std::collections::{BTreeMap, BTreeSet};

/// Value of `app.kubernetes.io/component`: it has no role, so that nothing takes it for a worker.
const COMPONENT: &str = "fetch";
pub(crate) const CONTAINER: &str = "fetch";
/// Where its outcome is read from.
const LAST_WORDS: &str = "/dev/termination-log";
/// The group of our image's user, which a new volume is given to.
const GROUP: i64 = 65_532;
const GRACE_SECONDS: i64 = 10;

/// What a volume is cleaned up by, before a model is fetched to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CleanUp {
    /// For how long a commit must not have been asked for.
    pub(crate) unused_days: i32,
    /// `REPO@COMMIT` of those that stay.
    pub(crate) keep: BTreeSet<String>,
}

/// Whether a pod of this name fetches for a deployment.
pub(crate) fn is_fetcher(deployment: &PdDeployment, pod: &str) -> bool {
    pod.starts_with(&format!("{}-{COMPONENT}-", deployment.name_any()))
}

/// The pod for a source. It goes where prefill's workers may go: a volume that is made for it is made near them.
pub(crate) fn build_fetcher(
    deployment: &PdDeployment,
    source: &HuggingFaceSource,
    beside: &Pool,
    config: &BuildConfig,
) -> Pod {
    let digest = revision::of_fetch(source);
    let name = format!("{}-{COMPONENT}-{digest}", deployment.name_any());
    let metadata = component::owned(deployment, COMPONENT, name);
    let claim = match source.place() {
        Some(CachePlace::Claim(name)) => Some(name.to_owned()),
        Some(CachePlace::Nodes(_)) | None => None,
    };
    let mut container = build_container(source, config);
    let args = container.args.get_or_insert_default();
    args.extend(["--result".to_owned(), LAST_WORDS.to_owned()]);
    match claim {
        Some(_) => container.volume_mounts = Some(vec![mount()]),
        None => args.push("--resolve".to_owned()),
    }
    let mut spec = PodSpec {
        containers: vec![container],
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        image_pull_secrets: pod::pull_secrets(deployment),
        restart_policy: Some("OnFailure".to_owned()),
        security_context: Some(pod::pod_security_context()),
        termination_grace_period_seconds: Some(GRACE_SECONDS),
        volumes: claim.map(|claim_name| {
            vec![Volume {
                name: model::VOLUME.to_owned(),
                persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                    claim_name,
                    read_only: None,
                }),
                ..Volume::default()
            }]
        }),
        ..PodSpec::default()
    };
    let context = spec.security_context.get_or_insert_default();
    context.fs_group = Some(GROUP);
    // A volume of terabytes is not walked each time.
    context.fs_group_change_policy = Some("OnRootMismatch".to_owned());
    place(&mut spec, beside);
    Pod {
        metadata,
        spec: Some(spec),
        status: None,
    }
}

/// Has the pod make room on the volume before it fetches.
pub(crate) fn clean_first(pod: &mut Pod, clean_up: &CleanUp) {
    let CleanUp { unused_days, keep } = clean_up;
    let spec = pod.spec.iter_mut();
    for container in spec.flat_map(|spec| &mut spec.containers) {
        let mut args = Args(container.args.take().unwrap_or_default());
        args.flag("remove-unused-after-days", unused_days.to_string());
        for commit in keep {
            args.flag("keep", commit);
        }
        container.args = Some(args.0);
    }
}

/// The first container of a worker, where nodes keep the model: it fetches what its node lacks.
pub(super) fn on_node(deployment: &PdDeployment, config: &BuildConfig) -> Option<Container> {
    let source = deployment.spec.model.source.hugging_face.as_ref()?;
    match source.place()? {
        CachePlace::Claim(_) => return None,
        CachePlace::Nodes(_) => {}
    }
    let mut container = build_container(source, config);
    container.volume_mounts = Some(vec![mount()]);
    // The worker's own container names the port, which is that one's later.
    container.ports = None;
    // The folder is root's, as the kubelet makes it. Without a capability root is its owner and no more.
    let context = container.security_context.get_or_insert_default();
    (context.run_as_user, context.run_as_non_root) = (Some(0), Some(false));
    Some(container)
}

/// Where that container says how far it is, on a worker that shares its node's network.
pub(super) fn take_port(pod: &mut Pod, port: u16) {
    let spec = pod.spec.iter_mut();
    let first = spec.flat_map(|spec| spec.init_containers.iter_mut().flatten());
    for container in first.filter(|container| container.name == CONTAINER) {
        let mut args = Args(container.args.take().unwrap_or_default());
        args.set("port", port.to_string());
        container.args = Some(args.0);
    }
}

fn mount() -> VolumeMount {
    VolumeMount {
        name: model::VOLUME.to_owned(),
        mount_path: model::MOUNT.to_owned(),
        ..VolumeMount::default()
    }
}

fn build_container(source: &HuggingFaceSource, config: &BuildConfig) -> Container {
    let port = ports::HTTP;
    let mut args = vec![source.repo.clone()];
    let mut flag = |name: &str, value: &str| args.extend([format!("--{name}"), value.to_owned()]);
    flag("revision", source.revision());
    if let Some(file) = &source.file {
        flag("file", file);
    }
    flag("cache-dir", model::MOUNT);
    flag("host", pod::POD_IP_ARG);
    flag("port", &port.to_string());
    Container {
        name: CONTAINER.to_owned(),
        image: Some(config.image.clone()),
        command: Some(vec!["pd-fetch".to_owned()]),
        args: Some(args),
        env: Some(env(source, config)),
        ports: Some(vec![pod::port(pod::PORT_HTTP, i32::from(port))]),
        resources: Some(ResourceRequirements {
            requests: Some(BTreeMap::from([
                ("cpu".to_owned(), Quantity("500m".to_owned())),
                ("memory".to_owned(), Quantity("128Mi".to_owned())),
            ])),
            ..ResourceRequirements::default()
        }),
        security_context: Some(pod::security_context()),
        termination_message_policy: Some(pod::LAST_WORDS.to_owned()),
        ..Container::default()
    }
}

fn env(source: &HuggingFaceSource, config: &BuildConfig) -> Vec<EnvVar> {
    let mut env = pod::identity_env();
    let proxy = config.proxy.iter();
    env.extend(proxy.map(|(name, value)| pod::value_env(name, value)));
    if let Some(endpoint) = &source.endpoint {
        env.push(pod::value_env("HF_ENDPOINT", endpoint));
    }
    if let Some(token) = &source.token_secret_ref {
        env.push(pod::secret_env("HF_TOKEN", token.name.clone(), &token.key));
    }
    env
}

fn place(spec: &mut PodSpec, beside: &Pool) {
    placement::keep_to_our_architecture(spec, None);
    let Some(template) = beside.template_spec() else {
        return;
    };
    let selector = spec.node_selector.get_or_insert_default();
    selector.extend(template.node_selector.clone().unwrap_or_default());
    spec.affinity.clone_from(&template.affinity);
    let mut tolerations = template.tolerations.clone().unwrap_or_default();
    // Clusters of nothing but GPU nodes have this taint on each, which only those that ask for GPUs tolerate of themselves.
    tolerations.push(Toleration {
        key: Some(GPU.to_owned()),
        operator: Some("Exists".to_owned()),
        ..Toleration::default()
    });
    spec.tolerations = Some(tolerations);
}
