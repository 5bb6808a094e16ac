//! `kubectl pd doctor`: whether a cluster has what `PDDeployment`s need, each finding with its remedy.

mod findings;

use crate::connection::{Cluster, message_of};
use anyhow::{Result, bail};
use findings::{Finding, Level, findings};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::version::Info;
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::ListParams;
use kube::{Api, Resource};
use pd_crds::PdDeployment;
use pd_crds::pod::Pod;
use pd_protocol::labels;
use std::fmt::Debug;

/// The Lease of the operator that leads.
pub(crate) const LEASE: &str = "pd-operator";

/// What a cluster says of itself; what could not be read is why.
struct Facts {
    version: Read<Info>,
    nodes: Read<Vec<Node>>,
    leases: Read<Vec<Lease>>,
    deployments: Read<Vec<PdDeployment>>,
    /// Of all deployments.
    pods: Read<Vec<Pod>>,
    claims: Read<Vec<PersistentVolumeClaim>>,
}

type Read<T> = Result<T, String>;

/// Prints what it found; fails where something keeps deployments from serving.
pub(crate) async fn doctor(cluster: &Cluster) -> Result<String> {
    let (text, bad) = examine(cluster).await;
    if bad > 0 {
        crate::text::print(&text)?;
        bail!("{bad} of these keep deployments from serving");
    }
    Ok(text)
}

/// What it found, and how much of it is bad.
pub(crate) async fn examine(cluster: &Cluster) -> (String, usize) {
    let facts = Facts::read(cluster).await;
    let findings = findings(&facts, Timestamp::now());
    let bad = findings.iter().filter(|is| is.level == Level::Bad).count();
    (findings.iter().map(Finding::line).collect(), bad)
}

// === impl Facts ===

impl Facts {
    async fn read(cluster: &Cluster) -> Self {
        let client = &cluster.client;
        let version = client.apiserver_version().await;
        let lease = ListParams::default().fields(&format!("metadata.name={LEASE}"));
        let all = ListParams::default();
        let ours = ListParams::default().labels(labels::DEPLOYMENT);
        Self {
            version: version.map_err(|error| message_of(&error)),
            nodes: list(cluster, &all).await,
            leases: list(cluster, &lease).await,
            deployments: list(cluster, &all).await,
            pods: list(cluster, &ours).await,
            claims: list(cluster, &all).await,
        }
    }
}

/// Objects of a kind in all namespaces.
async fn list<K>(cluster: &Cluster, params: &ListParams) -> Read<Vec<K>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let api = Api::<K>::all(cluster.client.clone());
    let list = api.list(params).await;
    list.map(|list| list.items)
        .map_err(|error| message_of(&error))
}
