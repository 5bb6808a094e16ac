//! What the operator does with the workers of a node, decided by the node's own taints.

use k8s_openapi::api::core::v1::Node;

/// What the operator does with the pods of a node, from best to worst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeDisposition {
    #[default]
    Keep,
    /// The node is cordoned: its pods move to other nodes.
    Evacuate,
    /// The node has been silent for too long: its pods count as gone.
    Lost,
}

/// Taints of nodes that are silent or were shut down. Source: Kubernetes' well-known taints.
const LOST: [&str; 2] = [
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/out-of-service",
];
/// Taints that, like a cordon, ask for the node's pods to leave: Karpenter's and the cluster
/// autoscaler's.
const EVACUATE: [&str; 2] = ["karpenter.sh/disrupted", "ToBeDeletedByClusterAutoscaler"];

/// Reads a node's taints.
pub fn node_disposition(node: &Node) -> NodeDisposition {
    let spec = node.spec.as_ref();
    let taints = || spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let has = |keys: &[&str]| taints().any(|taint| keys.contains(&taint.key.as_str()));
    if has(&LOST) {
        NodeDisposition::Lost
    } else if has(&EVACUATE) || spec.is_some_and(|spec| spec.unschedulable == Some(true)) {
        NodeDisposition::Evacuate
    } else {
        NodeDisposition::Keep
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
        let place = |spec| node_disposition(&mk_node(spec));
        assert_eq!(place(json!({})), NodeDisposition::Keep);
        assert_eq!(place(tainted("nvidia.com/gpu")), NodeDisposition::Keep);
        assert_eq!(
            place(json!({"unschedulable": true})),
            NodeDisposition::Evacuate
        );
        assert_eq!(
            place(tainted("karpenter.sh/disrupted")),
            NodeDisposition::Evacuate
        );
        assert_eq!(
            place(tainted("node.kubernetes.io/unreachable")),
            NodeDisposition::Lost
        );
    }
}
