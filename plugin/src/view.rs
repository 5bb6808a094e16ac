//! A deployment and its pods, read at one time.

use crate::connection::Cluster;
use anyhow::Result;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use pd_crds::pod::Pod;
use pd_crds::status::{PdDeploymentStatus, PoolStatus, UNSEEN};
use pd_crds::{PdDeployment, PoolRole};
use pd_protocol::labels;

#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) deployment: PdDeployment,
    /// Routers and workers, by name.
    pub(crate) pods: Vec<Pod>,
}

// === impl View ===

impl View {
    pub(crate) async fn read(cluster: &Cluster, deployment: PdDeployment) -> Result<Self> {
        let name = deployment.name_any();
        let mut pods: Vec<Pod> = cluster.labelled(labels::DEPLOYMENT, &name).await?;
        pods.sort_by_key(ResourceExt::name_any);
        Ok(Self { deployment, pods })
    }

    /// Prefill's workers, then decode's.
    pub(crate) fn workers(&self) -> impl Iterator<Item = (PoolRole, &Pod)> {
        [PoolRole::Prefill, PoolRole::Decode]
            .into_iter()
            .flat_map(|role| self.workers_of(role).map(move |pod| (role, pod)))
    }

    pub(crate) fn workers_of(&self, role: PoolRole) -> impl Iterator<Item = &Pod> {
        let pods = self.pods.iter();
        pods.filter(move |pod| role_of(pod) == Some(role) && !labels::is_follower(pod.labels()))
    }

    pub(crate) fn routers(&self) -> impl Iterator<Item = &Pod> {
        let is_router = |pod: &&Pod| label(pod, labels::ROLE) == "router";
        self.pods.iter().filter(is_router)
    }

    /// What the operator wrote, if it has seen the deployment at all.
    pub(crate) fn status(&self) -> Option<&PdDeploymentStatus> {
        let status = self.deployment.status.as_ref();
        status.filter(|status| status.observed_generation.is_some_and(|seen| seen > UNSEEN))
    }

    pub(crate) fn condition(&self, name: &str) -> Option<&Condition> {
        let mut conditions = self.status()?.conditions.iter();
        conditions.find(|condition| condition.type_ == name)
    }

    /// Counts of prefill and of decode.
    pub(crate) fn pools(&self) -> Option<[(&'static str, &PoolStatus); 2]> {
        let pools = &self.status()?.pools;
        Some([("prefill", &pools.prefill), ("decode", &pools.decode)])
    }
}

/// What a worker does; nothing of a pod that is no worker.
pub(crate) fn role_of(pod: &Pod) -> Option<PoolRole> {
    match label(pod, labels::ROLE) {
        "prefill" => Some(PoolRole::Prefill),
        "decode" => Some(PoolRole::Decode),
        _ => None,
    }
}

pub(crate) fn label<'a>(pod: &'a Pod, name: &str) -> &'a str {
    pod.labels().get(name).map_or("", String::as_str)
}
