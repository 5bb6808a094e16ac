//! Where in a cluster pods go, unless their template says otherwise: to nodes that can run their image,
//! and apart from pods of their kind.

use super::component::Component;
use k8s_openapi::api::core::v1::{Pod, PodAffinityTerm, PodSpec, TopologySpreadConstraint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::ResourceExt;
use pd_crds::PdDeployment;
use pd_crds::scheduling::TopologySpec;
use pd_protocol::labels;
use std::collections::BTreeMap;

const ARCHITECTURE: &str = "kubernetes.io/arch";
const HOST: &str = "kubernetes.io/hostname";

/// Our image is of one architecture, the operator's own: on a node of another nothing of it starts.
/// What an image that the user names is built for, the user knows.
pub(super) fn keep_to_our_architecture(spec: &mut PodSpec, image: Option<&String>) {
    if image.is_none() {
        let own = BTreeMap::from([(ARCHITECTURE.to_owned(), own_architecture().to_owned())]);
        spec.node_selector = Some(own);
    }
}

/// Kubernetes' word for what this program was built for.
fn own_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Workers of one kind on a node before another node is made for the next: as many as nodes have GPUs, most often.
const WORKERS_TOGETHER: i32 = 8;

/// Pods of one kind and revision share as few nodes as there is room for: a node that is lost then
/// takes one of them. Where there is no room they go together.
///
/// Karpenter plans with a preference as with a demand, on nodes that it has yet to make; Kubernetes' scheduler ranks
/// nodes by how many of a kind they have, at any skew. So routers may cost a node each, and workers fill theirs.
pub(super) fn spread(spec: &mut PodSpec, deployment: &PdDeployment, component: Component) {
    let max_skew = match component {
        Component::Router => 1,
        Component::Prefill | Component::Decode => WORKERS_TOGETHER,
    };
    spec.topology_spread_constraints = Some(vec![TopologySpreadConstraint {
        max_skew,
        topology_key: HOST.to_owned(),
        when_unsatisfiable: "ScheduleAnyway".to_owned(),
        label_selector: Some(component.selector(deployment)),
        match_label_keys: Some(vec![labels::REVISION.to_owned()]),
        ..TopologySpreadConstraint::default()
    }]);
}

/// The pods of a replica go to one domain, and where it is exclusive no other replica that wants one for itself does.
/// The first of them finds none of its own anywhere, which the scheduler lets go where it likes.
pub(super) fn keep_together(pod: &mut Pod, topology: &TopologySpec) {
    let TopologySpec { key, exclusive } = topology;
    let replica = pod
        .labels()
        .get(labels::REPLICA)
        .cloned()
        .unwrap_or_default();
    if *exclusive {
        let labels = pod.labels_mut();
        labels.insert(labels::EXCLUSIVE.to_owned(), "true".to_owned());
    }
    let spec = pod.spec.get_or_insert_default();
    let affinity = spec.affinity.get_or_insert_default();
    let together = affinity.pod_affinity.get_or_insert_default();
    let together = &mut together.required_during_scheduling_ignored_during_execution;
    together.get_or_insert_default().push(PodAffinityTerm {
        topology_key: key.clone(),
        label_selector: Some(LabelSelector {
            match_expressions: Some(vec![replicas("In", &replica)]),
            ..LabelSelector::default()
        }),
        ..PodAffinityTerm::default()
    });
    if *exclusive {
        let apart = affinity.pod_anti_affinity.get_or_insert_default();
        let apart = &mut apart.required_during_scheduling_ignored_during_execution;
        apart.get_or_insert_default().push(PodAffinityTerm {
            topology_key: key.clone(),
            label_selector: Some(LabelSelector {
                match_labels: Some(BTreeMap::from([(
                    labels::EXCLUSIVE.to_owned(),
                    "true".to_owned(),
                )])),
                match_expressions: Some(vec![replicas("NotIn", &replica)]),
            }),
            ..PodAffinityTerm::default()
        });
    }
}

fn replicas(operator: &str, replica: &str) -> LabelSelectorRequirement {
    LabelSelectorRequirement {
        key: labels::REPLICA.to_owned(),
        operator: operator.to_owned(),
        values: Some(vec![replica.to_owned()]),
    }
}
