//! Which fields of a Pod the local runtime carries out. All others are refused by path, so that
//! nothing is silently left out.

use crate::controller::build::pod::{pod_security_context, security_context};
use k8s_openapi::api::core::v1::Pod;
use pd_crds::field::{FieldError, FieldErrors, FieldPath};
use serde_json::{Value, json};

/// Fields that [`launch`](super::launch), [`probe`](super::probe) and
/// [`apply`](super::apply) carry out; what lies below a field is carried out with it.
const CARRIED_OUT: [&str; 25] = [
    "apiVersion",
    "kind",
    "metadata",
    "spec.containers.name",
    "spec.containers.command",
    "spec.containers.args",
    "spec.containers.env.name",
    "spec.containers.env.value",
    "spec.containers.env.valueFrom.fieldRef",
    "spec.containers.env.valueFrom.secretKeyRef",
    "spec.containers.ports",
    "spec.containers.startupProbe",
    "spec.containers.readinessProbe",
    "spec.containers.livenessProbe",
    "spec.containers.volumeMounts.name",
    "spec.containers.volumeMounts.mountPath",
    "spec.containers.volumeMounts.readOnly",
    "spec.volumes.name",
    "spec.volumes.hostPath.path",
    "spec.readinessGates",
    "spec.terminationGracePeriodSeconds",
    // A process has no image: the binary beside this one is the image.
    "spec.containers.image",
    // What a process says as it ends is shown at once.
    "spec.containers.terminationMessagePolicy",
    // There is no apiserver to have a token for, and no Service to name in the environment.
    "spec.automountServiceAccountToken",
    "spec.enableServiceLinks",
];

/// Probe fields beyond those of an HTTP GET or a connection are not carried out.
const PROBE_FIELDS: [&str; 11] = [
    "httpGet.path",
    "httpGet.port",
    "httpGet.host",
    "initialDelaySeconds",
    "periodSeconds",
    "timeoutSeconds",
    "failureThreshold",
    "successThreshold",
    "httpGet.scheme",
    "tcpSocket.host",
    "tcpSocket.port",
];

/// Refuses what a process on this machine would not get.
pub(crate) fn check(pod: &Pod) -> Result<(), FieldErrors> {
    let pod = serde_json::to_value(pod).expect("a Pod serializes to JSON");
    let mut errors = Vec::new();
    walk(&pod, "", &FieldPath::default(), &mut errors);
    FieldErrors::check(errors)
}

fn walk(value: &Value, plain: &str, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if is_carried_out(plain) || is_confinement(plain, value) {
        return;
    }
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let plain = if plain.is_empty() {
                    name.clone()
                } else {
                    format!("{plain}.{name}")
                };
                walk(value, &plain, &path.child(name), errors);
            }
        }
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                walk(item, plain, &path.index(i), errors);
            }
        }
        Value::Null => {}
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            errors.push(path.error("is not carried out on this machine; remove it"));
        }
    }
}

fn is_carried_out(plain: &str) -> bool {
    let probe = ["startupProbe", "readinessProbe", "livenessProbe"]
        .iter()
        .find_map(|probe| plain.strip_prefix(&format!("spec.containers.{probe}")));
    match probe {
        Some(field) => PROBE_FIELDS.contains(&field.trim_start_matches('.')),
        None => CARRIED_OUT.contains(&plain),
    }
}

/// A process runs as the user who started the operator. What the operator writes into every
/// pod and container to confine it is therefore let pass; anything else is refused.
fn is_confinement(plain: &str, value: &Value) -> bool {
    match plain {
        "spec.securityContext" => *value == json!(pod_security_context()),
        "spec.containers.securityContext" => *value == json!(security_context()),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
