//! What becomes of the workers of a node, as the node itself tells.

use k8s_openapi::api::core::v1::Node;

/// What becomes of the node that a pod runs on, from best to worst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    #[default]
    Stays,
    /// It is cordoned: the pod is to run elsewhere.
    Emptied,
    /// Nobody has heard of it for too long: the pod is as good as gone.
    Lost,
}

/// Taints of nodes that nobody has heard of, or that were shut down. Source: Kubernetes' well-known
/// taints.
const LOST: [&str; 2] = [
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/out-of-service",
];
/// Taints of nodes that are to be emptied, besides a cordon: Karpenter's and the cluster
/// autoscaler's.
const EMPTIED: [&str; 2] = ["karpenter.sh/disrupted", "ToBeDeletedByClusterAutoscaler"];

/// Reads what is to become of a node.
pub fn place_of(node: &Node) -> Place {
    let spec = node.spec.as_ref();
    let taints = || spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let has = |keys: &[&str]| taints().any(|taint| keys.contains(&taint.key.as_str()));
    if has(&LOST) {
        Place::Lost
    } else if has(&EMPTIED) || spec.is_some_and(|spec| spec.unschedulable == Some(true)) {
        Place::Emptied
    } else {
        Place::Stays
    }
}

#[cfg(test)]
mod tests {
    //! Facts about nodes.

    use super::*;
    use serde_json::{Value, json};

    fn mk_node(spec: Value) -> Node {
        serde_json::from_value(json!({"metadata": {"name": "n"}, "spec": spec})).expect("a Node")
    }

    #[test]
    fn a_cordon_or_a_taint_empties_a_node_and_an_unreachable_one_is_lost() {
        let tainted = |key| json!({"taints": [{"key": key, "effect": "NoExecute"}]});
        let place = |spec| place_of(&mk_node(spec));
        assert_eq!(place(json!({})), Place::Stays);
        assert_eq!(place(tainted("nvidia.com/gpu")), Place::Stays);
        assert_eq!(place(json!({"unschedulable": true})), Place::Emptied);
        assert_eq!(place(tainted("karpenter.sh/disrupted")), Place::Emptied);
        assert_eq!(
            place(tainted("node.kubernetes.io/unreachable")),
            Place::Lost
        );
    }
}
