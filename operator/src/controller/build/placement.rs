//! Where in a cluster pods go, unless their template says otherwise: to nodes that can run their image,
//! and apart from pods of their kind.

use super::component::Component;
use k8s_openapi::api::core::v1::{PodSpec, TopologySpreadConstraint};
use pd_crds::PdDeployment;
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
