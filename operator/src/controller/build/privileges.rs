//! Which overrides of a pod would raise its privileges. A user who may create a `PDDeployment` need not
//! be one who may create pods, so what reaches beyond the pod is refused, unless the one who installed
//! the operator allowed it.
//!
//! The list is the Baseline level of the Pod Security Standards, root, nodes by name, and accounts of
//! others. Secrets of the namespace are not on it: a pod may mount them, and so may a deployment.
//! Source: kubernetes.io, Pod Security Standards.

use super::fetch;
use super::model;
use pd_crds::field::{FieldError, FieldPath};
use pd_crds::json_order::by_name;
use serde_json::{Value, json};

const REMEDY: &str = "raises the pod's privileges; leave it out, or have it allowed: helm value overrides.privileged";

/// Fields of a Pod's spec and the values that need no permission. Any value of a field that has
/// none needs it.
const OF_POD: [(&str, Option<Value>); 7] = [
    ("hostNetwork", Some(Value::Bool(false))),
    ("hostPID", Some(Value::Bool(false))),
    ("hostIPC", Some(Value::Bool(false))),
    ("automountServiceAccountToken", Some(Value::Bool(false))),
    ("nodeName", None),
    ("serviceAccountName", None),
    ("serviceAccount", None),
];

/// The same of a security context, the pod's or a container's.
const OF_SECURITY: [(&str, Option<Value>); 7] = [
    ("privileged", Some(Value::Bool(false))),
    ("allowPrivilegeEscalation", Some(Value::Bool(false))),
    ("runAsNonRoot", Some(Value::Bool(true))),
    ("procMount", None),
    ("seLinuxOptions", None),
    ("sysctls", None),
    ("windowsOptions", None),
];

const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Locking memory, for RDMA, stays within the pod's memory limit.
const CAPABILITIES: [&str; 1] = ["IPC_LOCK"];

/// What in the spec of a pod template needs permission.
pub(crate) fn raised(spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = beyond(spec, &OF_POD, path);
    errors.extend(of_security(
        &spec["securityContext"],
        &path.child("securityContext"),
    ));
    for (i, volume) in items(&spec["volumes"]) {
        errors.extend(of_volume(volume, &path.child("volumes").index(i)));
    }
    let class = spec["priorityClassName"].as_str().unwrap_or_default();
    if class.starts_with("system-") {
        errors.push(path.child("priorityClassName").error(REMEDY));
    }
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for (i, container) in items(&spec[list]) {
            let path = path.child(list).index(i);
            errors.extend(of_container(container, &path));
            if container["name"] == fetch::CONTAINER {
                errors.extend(of_fetch(container, &path));
            }
        }
    }
    errors
}

/// What in the metadata of a pod template needs permission: how profiles were chosen once.
pub(crate) fn raised_by_annotation(metadata: &Value, path: &FieldPath) -> Vec<FieldError> {
    let names = metadata["annotations"].as_object().into_iter().flatten();
    let profiles = names.filter(|(name, _)| name.starts_with(APP_ARMOR));
    let path = path.child("annotations");
    profiles
        .map(|(name, _)| path.child(name).error(REMEDY))
        .collect()
}

fn of_volume(volume: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = beyond(volume, &[("hostPath", None)], path);
    for (i, source) in items(&volume["projected"]["sources"]) {
        let path = path.child("projected").child("sources").index(i);
        errors.extend(beyond(source, &[("serviceAccountToken", None)], &path));
    }
    errors
}

/// A model may lie in a folder of the node, mounted read-only. A mount without a name is merged
/// with the operator's at the same path.
fn writes_to_model(mount: &Value) -> bool {
    match mount["name"].as_str() {
        Some(model::VOLUME) => mount["readOnly"] != true,
        Some(_) => false,
        None => mount["readOnly"] == false,
    }
}

fn of_container(container: &Value, path: &FieldPath) -> Vec<FieldError> {
    let security = path.child("securityContext");
    let mut errors = of_security(&container["securityContext"], &security);
    let added = items(&container["securityContext"]["capabilities"]["add"]);
    for (i, capability) in added {
        if CAPABILITIES.iter().all(|allowed| capability != allowed) {
            let path = security.child("capabilities").child("add").index(i);
            errors.push(path.error(REMEDY));
        }
    }
    for (i, mount) in items(&container["volumeMounts"]) {
        if writes_to_model(mount) {
            errors.push(path.child("volumeMounts").index(i).error(REMEDY));
        }
    }
    for (i, port) in items(&container["ports"]) {
        if port["hostPort"].as_i64().is_some_and(|port| port != 0) {
            errors.push(path.child("ports").index(i).child("hostPort").error(REMEDY));
        }
    }
    errors
}

/// The container that fetches a model to its node may write there, so what it runs is the operator's.
fn of_fetch(container: &Value, path: &FieldPath) -> Vec<FieldError> {
    let fields = container.as_object().into_iter().flat_map(by_name);
    let own = fields.filter(|(name, value)| {
        !["name", "resources"].contains(&name.as_str()) && !value.is_null()
    });
    own.map(|(name, _)| path.child(name).error(REMEDY))
        .collect()
}

fn of_security(context: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = beyond(context, &OF_SECURITY, path);
    if context["runAsUser"] == json!(0) {
        errors.push(path.child("runAsUser").error(REMEDY));
    }
    for profile in ["seccompProfile", "appArmorProfile"] {
        if context[profile]["type"] == "Unconfined" {
            errors.push(path.child(profile).child("type").error(REMEDY));
        }
    }
    errors
}

/// The fields of `object` that are neither absent nor as harmless as `fields` says.
fn beyond(object: &Value, fields: &[(&str, Option<Value>)], path: &FieldPath) -> Vec<FieldError> {
    let found = fields.iter().filter(|(name, harmless)| {
        let value = object.get(name).filter(|value| !value.is_null());
        value.is_some_and(|value| harmless.as_ref() != Some(value))
    });
    found
        .map(|(name, _)| path.child(name).error(REMEDY))
        .collect()
}

fn items(list: &Value) -> impl Iterator<Item = (usize, &Value)> {
    list.as_array().into_iter().flatten().enumerate()
}

#[cfg(test)]
mod tests {
    //! Facts about overrides, by what a user writes.

    use super::*;

    fn refused(spec: &Value) -> Vec<String> {
        let errors = raised(spec, &FieldPath::new("t"));
        errors.iter().map(|error| error.path.to_string()).collect()
    }

    #[test]
    fn what_stays_within_the_pod_needs_no_permission() {
        let spec = json!({
            "nodeSelector": {"gpu": "h100"},
            "runtimeClassName": "nvidia",
            "hostNetwork": false,
            "priorityClassName": "serving",
            "securityContext": {"fsGroup": 1000, "runAsNonRoot": true, "runAsUser": 7},
            "volumes": [{"name": "scratch", "emptyDir": {}}, {"name": "c", "hostPath": null}],
            "containers": [{
                "name": "agent",
                "ports": [{"containerPort": 1}],
                "volumeMounts": [
                    {"name": "scratch", "mountPath": "/s"},
                    {"name": "model", "mountPath": "/again", "readOnly": true},
                    {"mountPath": "/model", "subPath": "v2"},
                ],
                "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
            }],
            "initContainers": [{"name": "fetch", "resources": {"limits": {"memory": "1Gi"}}}],
        });
        assert_eq!(refused(&spec), Vec::<String>::new());
    }

    #[test]
    fn what_reaches_beyond_the_pod_is_refused_by_path() {
        let spec = json!({
            "hostNetwork": true,
            "hostPID": true,
            "hostIPC": true,
            "automountServiceAccountToken": true,
            "nodeName": "node-1",
            "priorityClassName": "system-node-critical",
            "serviceAccountName": "cluster-admin",
            "securityContext": {"runAsUser": 0, "seLinuxOptions": {"type": "spc_t"}, "sysctls": [{"name": "a", "value": "1"}]},
            "volumes": [
                {"name": "root", "hostPath": {"path": "/"}},
                {"name": "token", "projected": {"sources": [{"serviceAccountToken": {}}]}},
            ],
            "containers": [{
                "name": "agent",
                "ports": [{"containerPort": 1, "hostPort": 1}],
                "volumeMounts": [
                    {"name": "model", "mountPath": "/host"},
                    {"mountPath": "/model", "readOnly": false},
                ],
                "securityContext": {
                    "privileged": true,
                    "allowPrivilegeEscalation": true,
                    "runAsNonRoot": false,
                    "procMount": "Unmasked",
                    "seccompProfile": {"type": "Unconfined"},
                    "capabilities": {"add": ["IPC_LOCK", "SYS_ADMIN"]},
                },
            }],
            "initContainers": [
                {"name": "i", "securityContext": {"privileged": true}},
                {"name": "fetch", "image": "mine", "command": ["sh"]},
            ],
        });
        let expected = [
            "t.hostNetwork",
            "t.hostPID",
            "t.hostIPC",
            "t.automountServiceAccountToken",
            "t.nodeName",
            "t.serviceAccountName",
            "t.securityContext.seLinuxOptions",
            "t.securityContext.sysctls",
            "t.securityContext.runAsUser",
            "t.volumes[0].hostPath",
            "t.volumes[1].projected.sources[0].serviceAccountToken",
            "t.priorityClassName",
            "t.containers[0].securityContext.privileged",
            "t.containers[0].securityContext.allowPrivilegeEscalation",
            "t.containers[0].securityContext.runAsNonRoot",
            "t.containers[0].securityContext.procMount",
            "t.containers[0].securityContext.seccompProfile.type",
            "t.containers[0].securityContext.capabilities.add[1]",
            "t.containers[0].volumeMounts[0]",
            "t.containers[0].volumeMounts[1]",
            "t.containers[0].ports[0].hostPort",
            "t.initContainers[0].securityContext.privileged",
            "t.initContainers[1].command",
            "t.initContainers[1].image",
        ];
        assert_eq!(refused(&spec), expected);
    }

    #[test]
    fn annotations_choose_no_profile() {
        let name = format!("{APP_ARMOR}agent");
        let metadata = json!({"annotations": {name.as_str(): "unconfined", "team": "a"}});
        let errors = raised_by_annotation(&metadata, &FieldPath::new("t"));
        assert_eq!(errors.len(), 1, "{errors:?}");
    }
}
