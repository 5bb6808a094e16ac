//! `kubectl pd rotate-keys`: has the operator replace a deployment's peer keys, by an annotation whose value is the time.

use crate::connection::{Cluster, patch_params};
use anyhow::{Result, bail};
use k8s_openapi::jiff::{Timestamp, Unit};
use kube::ResourceExt;
use kube::api::Patch;
use pd_crds::PdDeployment;
use pd_protocol::labels::ROTATE_PEER_KEYS;
use serde_json::json;

pub(crate) async fn rotate_keys(cluster: &Cluster, name: &str) -> Result<String> {
    let deployment = cluster.deployment(name).await?;
    if !deployment.spec.authenticates_peers() {
        bail!("{name} has no peer keys: its spec.security.peers is Plain");
    }
    let now = Timestamp::now();
    let now = now.round(Unit::Second).unwrap_or(now);
    let patch = json!({"metadata": {
        "uid": deployment.uid(),
        "annotations": {ROTATE_PEER_KEYS: now.to_string()},
    }});
    let api = cluster.api::<PdDeployment>();
    let patched = api.patch(name, &patch_params(), &Patch::Merge(patch)).await;
    patched.map_err(|error| cluster.failed::<PdDeployment>("change", name, &error))?;
    Ok(format!(
        "{name} gets a new peer key in three steps, of some minutes each; `kubectl pd status {name}` shows how far it is.\n"
    ))
}

#[cfg(test)]
mod tests {
    //! Facts about asking for new keys.

    use super::*;
    use crate::fixture::apiserver::Apiserver;
    use crate::fixture::settled;
    use http::StatusCode;

    const DEPLOYMENT: &str = "/apis/pdserve.io/v1alpha1/namespaces/ml/pddeployments/tiny";

    #[tokio::test]
    async fn a_rotation_is_asked_for_by_an_annotation_where_there_are_keys() {
        let apiserver = Apiserver::default();
        apiserver.answers("GET", DEPLOYMENT, StatusCode::OK, settled());
        apiserver.answers("PATCH", DEPLOYMENT, StatusCode::OK, settled());
        let printed = rotate_keys(&apiserver.cluster(), "tiny").await.unwrap();
        assert!(printed.starts_with("tiny gets a new peer key"), "{printed}");
        let written = apiserver.written("PATCH", DEPLOYMENT);
        let value = &written["metadata"]["annotations"][ROTATE_PEER_KEYS];
        let asked: Timestamp = value.as_str().expect("a time").parse().expect("a time");
        assert!(Timestamp::now().duration_since(asked).as_secs() < 600);
        assert!(written["spec"].is_null());

        let mut plain = settled();
        plain["spec"]["security"] = json!({"peers": "Plain"});
        apiserver.answers("GET", DEPLOYMENT, StatusCode::OK, plain);
        let refused = rotate_keys(&apiserver.cluster(), "tiny").await;
        let error = refused.expect_err("there are none").to_string();
        assert!(error.contains("has no peer keys"), "{error}");
    }
}
