//! `kubectl pd rollout`: the revisions of a deployment, and moving between them.

pub(crate) mod difference;
pub(crate) mod history;
pub(crate) mod restart;
pub(crate) mod undo;

use crate::connection::{Cluster, patch_params};
use anyhow::Result;
use kube::ResourceExt;
use kube::api::Patch;
use pd_crds::PdDeployment;
use serde_json::json;

/// Holds a rollout where it is, or lets it go on.
pub(crate) async fn pause(cluster: &Cluster, name: &str, paused: bool) -> Result<String> {
    let deployment = cluster.deployment(name).await?;
    if deployment.spec.rollout.paused == paused {
        let is = if paused {
            "paused already"
        } else {
            "not paused"
        };
        return Ok(format!("{name} is {is}.\n"));
    }
    let patch = json!({
        "metadata": {"uid": deployment.uid()},
        "spec": {"rollout": {"paused": paused}},
    });
    let api = cluster.api::<PdDeployment>();
    let patched = api.patch(name, &patch_params(), &Patch::Merge(patch)).await;
    patched.map_err(|error| cluster.failed::<PdDeployment>("change", name, &error))?;
    Ok(if paused {
        format!(
            "{name} is paused: no worker is replaced by one of another revision until `kubectl pd rollout resume {name}`; scaling and drains go on.\n"
        )
    } else {
        format!("{name} goes on; `kubectl pd status {name}` shows how far it is.\n")
    })
}

#[cfg(test)]
mod tests {
    //! Facts about holding a rollout.

    use super::*;
    use crate::fixture::apiserver::Apiserver;
    use crate::fixture::settled;
    use http::StatusCode;

    const DEPLOYMENT: &str = "/apis/pdserve.io/v1alpha1/namespaces/ml/pddeployments/tiny";

    #[tokio::test]
    async fn a_pause_writes_nothing_but_the_pause() {
        let apiserver = Apiserver::default();
        apiserver.answers("GET", DEPLOYMENT, StatusCode::OK, settled());
        apiserver.answers("PATCH", DEPLOYMENT, StatusCode::OK, settled());
        let printed = pause(&apiserver.cluster(), "tiny", true).await.unwrap();
        assert!(printed.starts_with("tiny is paused: no worker is replaced"));
        let written = apiserver.written("PATCH", DEPLOYMENT);
        assert_eq!(written["spec"], json!({"rollout": {"paused": true}}));
    }

    #[tokio::test]
    async fn what_is_so_already_is_not_written() {
        let apiserver = Apiserver::default();
        apiserver.answers("GET", DEPLOYMENT, StatusCode::OK, settled());
        let printed = pause(&apiserver.cluster(), "tiny", false).await.unwrap();
        assert_eq!(printed, "tiny is not paused.\n");
    }
}
