//! Clusters that differ from a plain one: a folder through which workers of a node share memory; users that the cluster
//! assigns and a folder of a node that it never mounts, as OpenShift's `restricted-v2` has it.

use crate::stand::{Site, Stand, chat, deployment};
use anyhow::{Context, Result, ensure};
use pd_e2e::binaries::smollm2;
use serde_json::{Value, json};
use std::path::Path;

const SHARED: &str = "/run/pdserve-e2e";
/// A namespace's users, as OpenShift's annotation gives them.
const USERS: (u64, u64) = (1_000_680_000, 1_000_689_999);

#[tokio::test]
async fn workers_of_one_node_share_memory() -> Result<()> {
    let mut object = deployment(1, 1);
    object["spec"]["kv"] = json!({"nodeSharedMemory": true});
    for role in ["prefill", "decode"] {
        let node = json!({"spec": {"nodeSelector": {"kubernetes.io/hostname": "node-1"}}});
        object["spec"]["pools"][role]["podTemplate"] = node;
    }
    let site = Site {
        settings: vec![format!("sharedMemory.hostPath={SHARED}")],
        ..Site::default()
    };
    let stand = Stand::on(&site, &object).await?;
    let result = shares_memory(&stand).await;
    stand.end(result)
}

async fn shares_memory(stand: &Stand) -> Result<()> {
    let said = chat(&stand.url).await?;
    ensure!(said == stand.said, "{said:?} instead of {:?}", stand.said);
    let pods = stand.kubectl("get pods -l pdserve.io/role -o wide")?;
    eprintln!("{pods}");
    let log = stand.kubectl("logs -l pdserve.io/role=decode --tail=-1")?;
    let mut lines = log.lines();
    let chosen = lines
        .find(|line| line.contains("transport shm: "))
        .with_context(|| format!("KV came another way:\n{log}"))?;
    eprintln!("{chosen}");
    Ok(())
}

#[tokio::test]
async fn a_cluster_that_assigns_users_serves() -> Result<()> {
    let model = smollm2();
    let (folder, file) = (model.parent(), model.file_name());
    let folder = folder.context("a model lies in a folder")?;
    let file = file.and_then(|name| name.to_str());
    let mut object = deployment(1, 1);
    object["spec"]["model"]["source"] = json!({
        "pvc": {"claimName": "models", "path": file.context("a model has a name")?},
    });
    let unset = |user: &str| format!("podSecurityContext.{user}=null");
    let site = Site {
        settings: vec![unset("runAsUser"), unset("runAsGroup")],
        objects: assigns_users().into_iter().chain(volume(folder)).collect(),
        ..Site::default()
    };
    let stand = Stand::on(&site, &object).await?;
    let result = runs_as_assigned(&stand).await;
    stand.end(result)
}

async fn runs_as_assigned(stand: &Stand) -> Result<()> {
    let said = chat(&stand.url).await?;
    ensure!(said == stand.said, "{said:?} instead of {:?}", stand.said);
    let user = "{.metadata.name}{\"\\t\"}{.spec.securityContext.runAsUser}{\"\\n\"}";
    let path = format!("jsonpath={{range .items[*]}}{user}{{end}}");
    let listed = ["get", "pods", "--all-namespaces", "-o", &path];
    let listed = stand.cluster.kubectl(&listed)?;
    eprintln!("{listed}");
    let assigned = USERS.0.to_string();
    ensure!(
        listed.lines().all(|line| line.ends_with(&assigned)),
        "{listed}"
    );

    let mut wrong = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "wrong"}});
    wrong["spec"] = json!({
        "securityContext": {"runAsUser": 65532},
        "containers": [{"name": "wrong", "image": "pdserve"}],
    });
    let refused = stand.apply(&wrong).err().context("the policy is idle")?;
    eprintln!("{refused:#}");
    Ok(())
}

/// What `restricted-v2` does to a pod: it gives a user of the namespace's range, and refuses others and folders of the
/// node.
fn assigns_users() -> Vec<Value> {
    let pods = json!({"resourceRules": [{
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"],
    }]});
    let (least, most) = USERS;
    let in_range = |at: &str| {
        format!(
            "!has({at}.securityContext) || !has({at}.securityContext.runAsUser) || \
             ({at}.securityContext.runAsUser >= {least} && {at}.securityContext.runAsUser <= {most})"
        )
    };
    let assign = format!(
        "Object{{spec: Object.spec{{securityContext: Object.spec.securityContext{{\
         runAsUser: {least}, fsGroup: {least}}}}}}}"
    );
    let validation =
        |expression: String, message: &str| json!({"expression": expression, "message": message});
    let containers = in_range("c");
    vec![
        policy(
            "Mutating",
            &json!({
                "matchConstraints": pods, "failurePolicy": "Fail", "reinvocationPolicy": "Never",
                "matchConditions": [{
                    "name": "has-no-user",
                    "expression": "!has(object.spec.securityContext) || \
                                   !has(object.spec.securityContext.runAsUser)",
                }],
                "mutations": [{
                    "patchType": "ApplyConfiguration",
                    "applyConfiguration": {"expression": assign},
                }],
            }),
        ),
        policy(
            "Validating",
            &json!({
                "matchConstraints": pods, "failurePolicy": "Fail",
                "validations": [
                    validation(in_range("object.spec"), "runAsUser is not of the namespace's range"),
                    validation(
                        format!("object.spec.containers.all(c, {containers})"),
                        "a container's runAsUser is not of the namespace's range",
                    ),
                    validation(
                        "!has(object.spec.volumes) || object.spec.volumes.all(v, !has(v.hostPath))".to_owned(),
                        "folders of the node are never mounted",
                    ),
                ],
            }),
        ),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingAdmissionPolicyBinding",
            "metadata": {"name": "assigns-users"},
            "spec": {"policyName": "assigns-users"},
        }),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": "assigns-users"},
            "spec": {"policyName": "assigns-users", "validationActions": ["Deny"]},
        }),
    ]
}

fn policy(kind: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": format!("{kind}AdmissionPolicy"),
        "metadata": {"name": "assigns-users"},
        "spec": spec,
    })
}

/// A claim whose volume is a folder that every node has.
fn volume(folder: &Path) -> [Value; 2] {
    let size = json!({"storage": "1Gi"});
    let modes = json!(["ReadOnlyMany"]);
    [
        json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "models"},
            "spec": {
                "capacity": size, "accessModes": modes, "storageClassName": "",
                "hostPath": {"path": folder},
                "claimRef": {"namespace": "default", "name": "models"},
            },
        }),
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "models"},
            "spec": {
                "accessModes": modes, "storageClassName": "", "volumeName": "models",
                "resources": {"requests": size},
            },
        }),
    ]
}
