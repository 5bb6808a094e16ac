//! `kubectl pd restart`: a rollout to the same spec, for workers and routers that run another image than
//! new ones would, or that are to begin again. It writes the annotation of `kubectl rollout restart` into
//! every `podTemplate`, so that it is a revision like any other: `rollout undo` leads the workers
//! back, and what GitOps holds wins over it.

use crate::connection::{Cluster, patch_params};
use anyhow::Result;
use k8s_openapi::jiff::{Timestamp, Unit};
use kube::ResourceExt;
use kube::api::Patch;
use pd_crds::PdDeployment;
use serde_json::json;

const RESTARTED_AT: &str = "kubectl.kubernetes.io/restartedAt";

pub(crate) async fn restart(cluster: &Cluster, name: &str) -> Result<String> {
    let deployment = cluster.deployment(name).await?;
    let now = Timestamp::now();
    let now = now.round(Unit::Second).unwrap_or(now);
    let pods = json!({"podTemplate": {"metadata": {"annotations": {
        RESTARTED_AT: now.to_string(),
    }}}});
    let patch = json!({
        "metadata": {"uid": deployment.uid()},
        "spec": {"router": pods, "pools": {"prefill": pods, "decode": pods}},
    });
    let api = cluster.api::<PdDeployment>();
    let patched = api.patch(name, &patch_params(), &Patch::Merge(patch)).await;
    patched.map_err(|error| cluster.failed::<PdDeployment>("change", name, &error))?;
    Ok(if deployment.spec.rollout.paused {
        format!(
            "{name} is paused: its routers are replaced now, its workers after `kubectl pd rollout resume {name}`.\n"
        )
    } else {
        format!(
            "{name} replaces its pods step by step; `kubectl pd status {name}` shows how far it is.\n"
        )
    })
}

#[cfg(test)]
mod tests {
    //! Facts about restarts.

    use super::*;
    use crate::fixture::apiserver::Apiserver;
    use crate::fixture::settled;
    use http::StatusCode;
    use pd_crds::record::{recorded, restored};

    const DEPLOYMENT: &str = "/apis/pdserve.io/v1alpha1/namespaces/ml/pddeployments/tiny";

    #[tokio::test]
    async fn a_restart_is_a_revision_that_can_be_gone_back_from() {
        let apiserver = Apiserver::default();
        apiserver.answers("GET", DEPLOYMENT, StatusCode::OK, settled());
        apiserver.answers("PATCH", DEPLOYMENT, StatusCode::OK, settled());
        let printed = restart(&apiserver.cluster(), "tiny").await.unwrap();
        assert!(printed.starts_with("tiny replaces its pods step by step"));
        let written = apiserver.written("PATCH", DEPLOYMENT);
        let before: PdDeployment = serde_json::from_value(settled()).unwrap();
        let mut after = settled();
        for role in ["prefill", "decode"] {
            let template = written["spec"]["pools"][role]["podTemplate"].clone();
            assert!(template["metadata"]["annotations"][RESTARTED_AT].is_string());
            after["spec"]["pools"][role]["podTemplate"] = template;
        }
        let template = written["spec"]["router"]["podTemplate"].clone();
        assert!(template["metadata"]["annotations"][RESTARTED_AT].is_string());
        let after: PdDeployment = serde_json::from_value(after).unwrap();
        let record = recorded(&before.spec);
        assert_ne!(recorded(&after.spec), record, "it is another revision");
        let back = restored(&json!(after.spec), &record).unwrap();
        assert_eq!(back, json!(before.spec));
    }
}
