//! What there is to say of a cluster, as a function of what it says of itself.

use super::Facts;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use pd_crds::PdDeployment;
use pd_crds::gpus::{self, GpuDemand};
use pd_crds::model::CachePlace;
use pd_crds::pool::GPU;
use pd_crds::stuck::stuck;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The oldest Kubernetes that the chart installs on.
const MINOR_MIN: u32 = 33;
/// The oldest driver for the kernels of our image. Source: NVIDIA, CUDA 13.0 release notes.
const DRIVER_MIN: u32 = 580;
/// A Lease that was not renewed for longer has no holder.
const RENEWED_SECONDS: i64 = 15;
/// Labels that NVIDIA's and the node feature discovery put on nodes with GPUs.
const DRIVER_LABELS: [&str; 2] = [
    "nvidia.com/cuda.driver-version.major",
    "nvidia.com/cuda.driver.major",
];
const NVIDIA_LABEL: &str = "feature.node.kubernetes.io/pci-10de.present";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Good,
    /// It serves, but slower or with less than it could.
    Note,
    /// It keeps deployments from serving.
    Bad,
}

pub(super) struct Finding {
    pub(super) level: Level,
    what: String,
    /// What to do.
    remedy: Option<String>,
}

pub(super) fn findings(facts: &Facts, now: Timestamp) -> Vec<Finding> {
    let mut findings = vec![version(facts), operator(facts, now)];
    match &facts.nodes {
        Err(why) => findings.push(unread("nodes", why)),
        Ok(nodes) => {
            findings.push(architecture(nodes));
            findings.push(gpus(nodes));
            findings.extend(driver(nodes));
            findings.push(rdma(nodes));
            if let Ok(deployments) = &facts.deployments {
                let of = deployments.iter();
                findings.extend(of.filter_map(|deployment| demand(deployment, nodes)));
            }
        }
    }
    match &facts.deployments {
        Err(why) => findings.push(bad(
            format!("PDDeployments cannot be listed: {why}"),
            "install the chart pdserve-crds, or ask for the right to list pddeployments",
        )),
        Ok(deployments) => {
            let of = deployments.iter();
            findings.extend(of.clone().filter_map(|deployment| claim(deployment, facts)));
            findings.extend(of.filter_map(unfetched));
        }
    }
    findings.extend(stuck_pods(facts));
    findings
}

fn version(facts: &Facts) -> Finding {
    match &facts.version {
        Err(why) => unread("the version", why),
        Ok(version) => {
            let digits = version
                .minor
                .trim_end_matches(|letter: char| !letter.is_ascii_digit());
            let name = format!("Kubernetes {}.{}", version.major, version.minor);
            match digits.parse::<u32>() {
                Ok(minor) if minor < MINOR_MIN => bad(
                    format!("{name} is older than 1.{MINOR_MIN}"),
                    "upgrade the cluster",
                ),
                Ok(_) | Err(_) => good(name),
            }
        }
    }
}

fn operator(facts: &Facts, now: Timestamp) -> Finding {
    let remedy = "install the chart pdserve, or look at its pods: kubectl get pods -A -l \
                  app.kubernetes.io/component=operator";
    let leases = match &facts.leases {
        Err(why) => return unread("Leases", why),
        Ok(leases) => leases,
    };
    let age = |lease: &Lease| {
        let renewed = lease.spec.as_ref()?.renew_time.as_ref()?;
        Some(now.duration_since(renewed.0).as_secs())
    };
    let youngest = leases.iter().filter_map(|lease| Some((age(lease)?, lease)));
    match youngest.min_by_key(|(age, _)| *age) {
        Some((age, lease)) if age <= RENEWED_SECONDS => {
            let namespace = lease.namespace().unwrap_or_default();
            good(format!("an operator leads, in namespace {namespace}"))
        }
        Some((age, lease)) => bad(
            format!(
                "the operator's Lease in namespace {} was renewed {age} s ago",
                lease.namespace().unwrap_or_default()
            ),
            remedy,
        ),
        None => bad("no operator leads".to_owned(), remedy),
    }
}

fn architecture(nodes: &[Node]) -> Finding {
    let amd64 = nodes.iter().filter(|node| {
        let labels = node.labels();
        labels
            .get("kubernetes.io/arch")
            .is_some_and(|it| it == "amd64")
    });
    match amd64.count() {
        0 => bad(
            "no node is amd64, which our image is built for".to_owned(),
            "add one: routers and the operator run there",
        ),
        count => good(format!("{count} of {} nodes are amd64", nodes.len())),
    }
}

fn gpus(nodes: &[Node]) -> Finding {
    let with: Vec<i64> = nodes.iter().map(gpus_of).filter(|gpus| *gpus > 0).collect();
    let has_nvidia = |node: &&Node| node.labels().contains_key(NVIDIA_LABEL);
    let silent = nodes
        .iter()
        .filter(has_nvidia)
        .filter(|node| gpus_of(node) == 0);
    let silent: Vec<String> = silent.map(ResourceExt::name_any).collect();
    let remedy =
        "install NVIDIA's device plugin, or the GPU operator, which brings the driver, too";
    if !silent.is_empty() {
        return bad(
            format!(
                "{} have NVIDIA's hardware and offer no {GPU}",
                silent.join(", ")
            ),
            remedy,
        );
    }
    if with.is_empty() {
        return note(
            format!("no node offers {GPU}, so that workers compute on CPUs"),
            remedy,
        );
    }
    let total: i64 = with.iter().sum();
    good(format!("{total} GPUs on {} nodes", with.len()))
}

fn driver(nodes: &[Node]) -> Option<Finding> {
    let with = nodes.iter().filter(|node| gpus_of(node) > 0);
    let drivers: BTreeMap<String, Option<u32>> = with
        .map(|node| {
            let mut found = DRIVER_LABELS.iter();
            let major = found.find_map(|label| node.labels().get(*label)?.parse().ok());
            (node.name_any(), major)
        })
        .collect();
    let old = drivers
        .iter()
        .filter(|(_, major)| major.is_some_and(|major| major < DRIVER_MIN));
    let old: Vec<&str> = old.map(|(name, _)| name.as_str()).collect();
    if !old.is_empty() {
        return Some(bad(
            format!(
                "the driver of {} is older than {DRIVER_MIN}",
                old.join(", ")
            ),
            "upgrade it: the CUDA kernels of our image are of CUDA 13.0. SGLang and vLLM have their own demands",
        ));
    }
    let unknown = drivers.values().filter(|major| major.is_none()).count();
    (unknown > 0).then(|| {
        note(
            format!("{unknown} nodes with GPUs do not say which driver they have"),
            "install NVIDIA's GPU feature discovery to see it here",
        )
    })
}

fn rdma(nodes: &[Node]) -> Finding {
    let resources = nodes.iter().flat_map(|node| {
        let status = node.status.iter();
        let allocatable = status.filter_map(|status| status.allocatable.as_ref());
        allocatable.flat_map(BTreeMap::keys)
    });
    let is_rdma = |name: &&String| name.starts_with("rdma/") || name.contains("hca");
    let names: BTreeSet<&String> = resources.filter(is_rdma).collect();
    if names.is_empty() {
        return note(
            "no node offers RDMA devices, so that KV moves over TCP between nodes".to_owned(),
            "install an RDMA device plugin and name its resource in the pools' limits",
        );
    }
    let names: Vec<&str> = names.into_iter().map(String::as_str).collect();
    note(
        format!("RDMA devices are offered as {}", names.join(", ")),
        "containers have to lock memory: LimitMEMLOCK=infinity of containerd's unit; `pd-agent kv-probe` measures the path",
    )
}

/// A deployment that asks for more GPUs than the cluster has.
fn demand(deployment: &PdDeployment, nodes: &[Node]) -> Option<Finding> {
    let has = nodes.iter().map(gpus_of).fold(0, i64::saturating_add);
    let exceeds = GpuDemand::of(&deployment.spec.pools).exceeding(has)?;
    Some(bad(
        format!("{} {exceeds}", named(deployment)),
        "lower replicas or tp, or add nodes",
    ))
}

/// A model that cannot be fetched.
fn unfetched(deployment: &PdDeployment) -> Option<Finding> {
    let model = deployment.status.as_ref()?.model.as_ref()?;
    let is_refused = !model.is_fetched() && model.refused;
    is_refused.then(|| {
        bad(
            format!("the model of {} {}", named(deployment), model.message),
            "docs/troubleshooting/FetchingModel.md goes through the causes",
        )
    })
}

/// A volume for models that workers of several nodes cannot mount.
fn claim(deployment: &PdDeployment, facts: &Facts) -> Option<Finding> {
    let source = &deployment.spec.model.source;
    let place = source.hugging_face.as_ref().and_then(|it| it.place());
    let fetched = match place {
        Some(CachePlace::Claim(name)) => Some(name),
        Some(CachePlace::Nodes(_)) | None => None,
    };
    let name = fetched.or(source.pvc.as_ref().map(|pvc| pvc.claim_name.as_str()))?;
    let claims = facts.claims.as_ref().ok()?;
    let found = claims
        .iter()
        .find(|claim| claim.name_any() == name && claim.namespace() == deployment.namespace());
    let who = named(deployment);
    let Some(found) = found else {
        return Some(bad(
            format!("{who} reads its model from the claim {name}, which is not there"),
            "make it, with room for the model",
        ));
    };
    let phase = found
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    if phase != Some("Bound") {
        return Some(note(
            format!("the claim {name} of {who} is {}", phase.unwrap_or("new")),
            "one that waits for its first pod is bound with that; otherwise see `kubectl describe pvc`",
        ));
    }
    let modes = found
        .spec
        .as_ref()
        .and_then(|spec| spec.access_modes.as_ref());
    let is_shared = |mode: &String| mode == "ReadWriteMany" || mode == "ReadOnlyMany";
    let is_shared = modes.is_some_and(|modes| modes.iter().any(is_shared));
    (!is_shared).then(|| {
        note(
            format!("pods of one node alone can mount the claim {name} of {who}"),
            "use one with ReadWriteMany, or keep its pods on that node",
        )
    })
}

fn stuck_pods(facts: &Facts) -> Vec<Finding> {
    let pods = match &facts.pods {
        Err(why) => return vec![unread("pods", why)],
        Ok(pods) => pods,
    };
    let stuck = pods.iter().filter_map(|pod| {
        let namespace = pod.namespace().unwrap_or_default();
        let why = stuck(pod)?.message;
        Some(bad(
            format!("pod {namespace}/{why}"),
            "`kubectl pd explain` says what it means for its deployment",
        ))
    });
    stuck.collect()
}

fn gpus_of(node: &Node) -> i64 {
    let status = node.status.as_ref();
    let allocatable = status.and_then(|status| status.allocatable.as_ref());
    allocatable.map_or(0, gpus::gpus_of)
}

fn named(deployment: &PdDeployment) -> String {
    let namespace = deployment.namespace().unwrap_or_default();
    format!("PDDeployment {namespace}/{}", deployment.name_any())
}

fn good(what: String) -> Finding {
    Finding {
        level: Level::Good,
        what,
        remedy: None,
    }
}

fn note(what: String, remedy: &str) -> Finding {
    Finding {
        level: Level::Note,
        what,
        remedy: Some(remedy.to_owned()),
    }
}

fn bad(what: String, remedy: &str) -> Finding {
    Finding {
        level: Level::Bad,
        ..note(what, remedy)
    }
}

fn unread(what: &str, why: &str) -> Finding {
    note(
        format!("{what} could not be read: {why}"),
        "run it as someone who may read them",
    )
}

// === impl Finding ===

impl Finding {
    pub(super) fn line(&self) -> String {
        match &self.remedy {
            None => format!("{}  {}\n", self.level, self.what),
            Some(remedy) => format!("{}  {}\n      → {remedy}\n", self.level, self.what),
        }
    }
}

// === impl Level ===

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Good => "ok  ",
            Self::Note => "note",
            Self::Bad => "BAD ",
        })
    }
}

#[cfg(test)]
mod tests;
