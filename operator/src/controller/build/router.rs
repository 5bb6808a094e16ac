//! The router: a plain Deployment, so that it heals without the operator.

use super::args::Args;
use super::component::Component;
use super::config::BuildConfig;
use super::merge::merge_template;
use super::{access, memory, peers, placement, pod, revision, shared, spans, worker_key};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{
    Container, ContainerPort, PodTemplateSpec, Probe, ResourceRequirements, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use pd_crds::PdDeployment;
use pd_crds::field::{FieldErrors, FieldPath};
use pd_crds::limits::LimitsSpec;
use pd_crds::router::{PoliciesSpec, RetriesSpec, RouterSpec};
use pd_protocol::{labels, ports};

const ROUTER: Component = Component::Router;
/// Name of the container that runs the router.
pub(crate) const CONTAINER: &str = "router";

/// Builds the router's Deployment.
pub(crate) fn build_router(
    deployment: &PdDeployment,
    config: &BuildConfig,
) -> Result<Deployment, FieldErrors> {
    let spec = &deployment.spec.router;
    let revision = revision::revision(&deployment.spec, ROUTER);
    let mut pod = pod::build_pod(
        deployment,
        ROUTER,
        &revision,
        build_container(deployment, config),
    );
    let pod_spec = pod.spec.get_or_insert_default();
    let volumes: Vec<Volume> = volumes(deployment, config).map(|it| it.0).collect();
    pod_spec.volumes = Some(volumes).filter(|volumes| !volumes.is_empty());
    if config.discovery {
        placement::keep_to_our_architecture(pod_spec, spec.image.as_ref());
        // The same for any number of routers, so that a new number replaces none.
        placement::spread(pod_spec, deployment, ROUTER);
    }
    let path = FieldPath::new("spec.router.podTemplate");
    let mut pod = merge_template(
        &pod,
        spec.pod_template.as_ref(),
        &path,
        config.may_raise_privileges,
    )?;
    pod.metadata.name = None;
    pod.metadata.namespace = None;
    pod.metadata.owner_references = None;
    if config.discovery {
        let pod_spec = pod.spec.get_or_insert_default();
        pod_spec.service_account_name = Some(shared::ROUTERS.to_owned());
        pod_spec.automount_service_account_token = Some(true);
    }
    Ok(Deployment {
        metadata: ROUTER.metadata(deployment, ROUTER.object_name(deployment)),
        spec: Some(DeploymentSpec {
            // Absent, the number belongs to another owner: what is not applied is not undone.
            replicas: spec.replicas,
            selector: ROUTER.selector(deployment),
            template: PodTemplateSpec {
                metadata: Some(pod.metadata),
                spec: pod.spec,
            },
            ..DeploymentSpec::default()
        }),
        status: None,
    })
}

/// Which spec the routers' Deployment was built from, and the image that it names.
pub(crate) fn revision_and_image(routers: &Deployment) -> Option<(&str, &str)> {
    let template = &routers.spec.as_ref()?.template;
    let revision = template
        .metadata
        .as_ref()?
        .labels
        .as_ref()?
        .get(labels::REVISION)?;
    let mut containers = template.spec.as_ref()?.containers.iter();
    let program = containers.find(|it| it.name == CONTAINER)?;
    Some((revision, program.image.as_deref()?))
}

fn build_container(deployment: &PdDeployment, config: &BuildConfig) -> Container {
    let router = &deployment.spec.router;
    let RouterSpec {
        replicas: _,
        port,
        api_keys: _,
        tls: _,
        image,
        policies: PoliciesSpec { prefill, decode },
        retries: RetriesSpec { max },
        limits,
        service: _,
        resources,
        pod_template: _,
    } = router;
    let mut args = Args::default();
    args.switch("pd-disaggregation");
    let host = config.router_host.map(|host| host.to_string());
    // In a pod of its own also on loopback, which is where `kubectl port-forward` leads.
    let everywhere = if config.discovery {
        "::"
    } else {
        pod::POD_IP_ARG
    };
    args.flag("host", host.as_deref().unwrap_or(everywhere));
    args.flag("port", port.to_string());
    args.flag("admin-host", pod::POD_IP_ARG);
    args.flag("admin-port", ports::ADMIN.to_string());
    args.flag("prefill-policy", prefill.flag());
    args.flag("decode-policy", decode.flag());
    args.flag("retry-max-retries", max.to_string());
    add_limits(&mut args, limits);
    access::add_flags(&mut args, router);
    peers::add_flag(&mut args, &deployment.spec, config);
    if config.discovery {
        join_cluster(&mut args, deployment);
    }
    let drain_seconds = deployment.spec.drain.timeout_seconds;
    args.flag("shutdown-grace-period-secs", drain_seconds.to_string());
    let mounts: Vec<VolumeMount> = volumes(deployment, config).map(|it| it.1).collect();
    let probe = |path, period_seconds, failures| {
        let probe = pod::http_probe(path, period_seconds, failures);
        probe_api(probe, router, host.as_ref())
    };
    let mut env = pod::identity_env();
    env.push(pod::admin_token_env(deployment));
    env.extend(worker_key::router_env(deployment));
    env.extend(spans::env(&deployment.spec));
    Container {
        name: CONTAINER.to_owned(),
        image: Some(image.clone().unwrap_or_else(|| config.image.clone())),
        command: Some(vec!["pd-router".to_owned()]),
        args: Some(args.0),
        env: Some(env),
        ports: Some(build_ports(router)),
        resources: resources
            .clone()
            .or_else(|| config.discovery.then(|| own_resources(limits))),
        volume_mounts: Some(mounts).filter(|mounts| !mounts.is_empty()),
        startup_probe: Some(probe("/health", 1, 60)),
        readiness_probe: Some(probe("/ready", 1, 2)),
        liveness_probe: Some(probe("/health", 10, 6)),
        security_context: Some(pod::security_context()),
        termination_message_policy: Some(pod::LAST_WORDS.to_owned()),
        ..Container::default()
    }
}

/// Volumes of a router, each with its place in the container.
fn volumes(
    deployment: &PdDeployment,
    config: &BuildConfig,
) -> impl Iterator<Item = (Volume, VolumeMount)> {
    let access = access::volumes(&deployment.spec.router);
    access.chain(peers::volume(deployment, config))
}

fn add_limits(args: &mut Args, limits: &LimitsSpec) {
    let LimitsSpec {
        max_concurrent_requests,
        queue_size,
        queue_timeout_seconds,
        no_worker_timeout_seconds,
        request_timeout_seconds,
        max_payload_bytes,
    } = limits;
    let concurrent = max_concurrent_requests.map(|max| max.to_string());
    let concurrent = concurrent.unwrap_or_else(|| "auto".to_owned());
    args.flag("max-concurrent-requests", concurrent);
    for (name, value) in [
        ("queue-size", queue_size),
        ("queue-timeout-secs", queue_timeout_seconds),
        ("no-worker-timeout-secs", no_worker_timeout_seconds),
        ("request-timeout-secs", request_timeout_seconds),
        ("max-payload-size", max_payload_bytes),
    ] {
        args.flag(name, value.to_string());
    }
}

/// What a router is sure of where the spec says nothing, so that it is not the first to be killed, and what it may take: at
/// 0.2 ms of CPU for a stream 100m are 500 streams a second, and 64 MiB are above what it took under the bench's load.
fn own_resources(limits: &LimitsSpec) -> ResourceRequirements {
    let quantity = |(name, value): (&str, String)| (name.to_owned(), Quantity(value));
    let requests = [("cpu", "100m".to_owned()), ("memory", "64Mi".to_owned())];
    let limit = format!("{}Mi", memory::router_limit_mib(limits));
    ResourceRequirements {
        requests: Some(requests.map(quantity).into()),
        limits: Some([("memory", limit)].map(quantity).into()),
        ..ResourceRequirements::default()
    }
}

fn build_ports(router: &RouterSpec) -> Vec<ContainerPort> {
    let mut ports = vec![
        pod::port(access::port_name(router), router.port),
        pod::admin_port(),
    ];
    if router.tls.is_some() {
        ports.push(pod::port(pod::PORT_METRICS, router.metrics_port()));
    }
    ports
}

/// A probe of the API where it listens, in the scheme that it speaks. Kubelet takes any
/// certificate.
fn probe_api(mut probe: Probe, router: &RouterSpec, host: Option<&String>) -> Probe {
    if let Some(get) = &mut probe.http_get {
        get.host = host.cloned();
        get.port = IntOrString::String(access::port_name(router).to_owned());
        get.scheme = router.tls.as_ref().map(|_| "HTTPS".to_owned());
    }
    probe
}

/// Seconds that a router goes on taking requests while the nodes learn that it leaves.
const LEAVING_SECONDS: u32 = 10;

/// Flags of a router in a cluster: how it finds its workers, and how it leaves its Service.
fn join_cluster(args: &mut Args, deployment: &PdDeployment) {
    args.flag("shutdown-delay-secs", LEAVING_SECONDS.to_string());
    args.switch("service-discovery");
    if let Some(namespace) = deployment.namespace() {
        args.flag("service-discovery-namespace", namespace);
    }
    for component in [Component::Prefill, Component::Decode] {
        let labels = component.selector_labels(deployment).into_iter();
        let selector: Vec<String> = labels
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        args.flag(
            &format!("{}-selector", component.as_str()),
            selector.join(","),
        );
    }
}
