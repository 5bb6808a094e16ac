//! What the pods of every component have in common: identity, token, ports, probes, security.

use super::component::Component;
use k8s_openapi::api::core::v1::{
    Capabilities, Container, ContainerPort, EnvVar, EnvVarSource, HTTPGetAction,
    LocalObjectReference, ObjectFieldSelector, Pod, PodSecurityContext, PodSpec, Probe,
    SeccompProfile, SecretKeySelector, SecurityContext, TCPSocketAction,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use pd_crds::PdDeployment;
use pd_protocol::{labels, ports};

/// Names of the container ports.
pub(crate) const PORT_HTTP: &str = "http";
pub(crate) const PORT_HTTPS: &str = "https";
/// As the operator's own, so that one PodMonitor finds both.
pub(crate) const PORT_METRICS: &str = "metrics";
pub(crate) const PORT_ADMIN: &str = "admin";
pub(crate) const PORT_BOOTSTRAP: &str = "bootstrap";

/// The argument that becomes the pod's own address.
pub(crate) const POD_IP_ARG: &str = "$(POD_IP)";

/// Key of the admin token in the Secret that [`admin_secret`] names.
pub(crate) const ADMIN_SECRET_KEY: &str = "token";

/// A program that fails says why in its last line, and the pod's status shows it.
pub(crate) const LAST_WORDS: &str = "FallbackToLogsOnError";

/// Seconds that a process has, after its drain, to leave before it is killed.
const GRACE_AFTER_DRAIN_SECONDS: i64 = 30;

/// Secret with the token of the admin API.
pub(crate) fn admin_secret(deployment: &PdDeployment) -> String {
    format!("{}-admin", deployment.name_any())
}

/// A pod around one container; `containers[0]` is the component's own.
pub(crate) fn build_pod(
    deployment: &PdDeployment,
    component: Component,
    revision: &str,
    container: Container,
) -> Pod {
    let mut metadata = component.metadata(deployment, component.object_name(deployment));
    let labels = metadata.labels.get_or_insert_default();
    labels.insert(labels::REVISION.to_owned(), revision.to_owned());
    let drain_seconds = i64::from(deployment.spec.drain.timeout_seconds);
    let spec = PodSpec {
        containers: vec![container],
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        image_pull_secrets: pull_secrets(deployment),
        security_context: Some(pod_security_context()),
        termination_grace_period_seconds: Some(drain_seconds + GRACE_AFTER_DRAIN_SECONDS),
        ..PodSpec::default()
    };
    Pod {
        metadata,
        spec: Some(spec),
        status: None,
    }
}

pub(super) fn pull_secrets(deployment: &PdDeployment) -> Option<Vec<LocalObjectReference>> {
    let secrets = deployment.spec.image_pull_secrets.iter();
    let secrets = secrets.map(|secret| LocalObjectReference {
        name: secret.name.clone(),
    });
    let secrets: Vec<_> = secrets.collect();
    (!secrets.is_empty()).then_some(secrets)
}

/// Environment of every container: who it is.
pub(crate) fn identity_env() -> Vec<EnvVar> {
    vec![
        field_env("POD_NAME", "metadata.name"),
        field_env("POD_IP", "status.podIP"),
    ]
}

/// What opens the admin API of a container that has one.
pub(crate) fn admin_token_env(deployment: &PdDeployment) -> EnvVar {
    secret_env(
        labels::ENV_ADMIN_TOKEN,
        admin_secret(deployment),
        ADMIN_SECRET_KEY,
    )
}

/// Where a worker runs: its GPUs' metrics say so.
pub(crate) fn place_env() -> Vec<EnvVar> {
    vec![
        field_env("POD_NAMESPACE", "metadata.namespace"),
        field_env("NODE_NAME", "spec.nodeName"),
    ]
}

/// A variable whose value is known now.
pub(crate) fn value_env(name: &str, value: &str) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value: Some(value.to_owned()),
        value_from: None,
    }
}

fn field_env(name: &str, field_path: &str) -> EnvVar {
    let field = ObjectFieldSelector {
        field_path: field_path.to_owned(),
        api_version: None,
    };
    EnvVar {
        name: name.to_owned(),
        value_from: Some(EnvVarSource {
            field_ref: Some(field),
            ..EnvVarSource::default()
        }),
        value: None,
    }
}

pub(crate) fn secret_env(name: &str, secret: String, key: &str) -> EnvVar {
    let key = SecretKeySelector {
        name: secret,
        key: key.to_owned(),
        optional: None,
    };
    EnvVar {
        name: name.to_owned(),
        value_from: Some(EnvVarSource {
            secret_key_ref: Some(key),
            ..EnvVarSource::default()
        }),
        value: None,
    }
}

pub(crate) fn port(name: &str, number: i32) -> ContainerPort {
    ContainerPort {
        name: Some(name.to_owned()),
        container_port: number,
        ..ContainerPort::default()
    }
}

pub(crate) fn admin_port() -> ContainerPort {
    port(PORT_ADMIN, i32::from(ports::ADMIN))
}

/// A GET of `path` on the HTTP port every `period_seconds`, failed after `failures` in a row.
pub(crate) fn http_probe(path: &str, period_seconds: i32, failures: i32) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::String(PORT_HTTP.to_owned()),
            ..HTTPGetAction::default()
        }),
        period_seconds: Some(period_seconds),
        timeout_seconds: Some(period_seconds.min(5)),
        failure_threshold: Some(failures),
        ..Probe::default()
    }
}

/// A connection to the HTTP port every `period_seconds`, failed after `failures` in a row.
pub(crate) fn tcp_probe(period_seconds: i32, failures: i32) -> Probe {
    Probe {
        tcp_socket: Some(TCPSocketAction {
            port: IntOrString::String(PORT_HTTP.to_owned()),
            ..TCPSocketAction::default()
        }),
        period_seconds: Some(period_seconds),
        failure_threshold: Some(failures),
        ..Probe::default()
    }
}

/// What containers that a template adds come under, too.
pub(crate) fn pod_security_context() -> PodSecurityContext {
    PodSecurityContext {
        run_as_non_root: Some(true),
        seccomp_profile: Some(default_seccomp()),
        ..PodSecurityContext::default()
    }
}

fn default_seccomp() -> SeccompProfile {
    SeccompProfile {
        type_: "RuntimeDefault".to_owned(),
        localhost_profile: None,
    }
}

/// Nothing of ours needs root, a writable root file system or a capability.
pub(crate) fn security_context() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities {
            drop: Some(vec!["ALL".to_owned()]),
            add: None,
        }),
        read_only_root_filesystem: Some(true),
        run_as_non_root: Some(true),
        seccomp_profile: Some(default_seccomp()),
        ..SecurityContext::default()
    }
}
