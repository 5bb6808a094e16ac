//! Network policies: who may open connections to the pods of a deployment.
//!
//! Its own pods reach each other on every port, because a KV transfer takes ports as it needs them.
//! Clients and Prometheus reach the API and the metrics from anywhere; who may ask is the router's API keys to
//! say. The admin port is the operator's. Where no network plugin enforces policies they do nothing.

use super::component::Component;
use super::pod::{PORT_ADMIN, PORT_HTTP, PORT_HTTPS, PORT_METRICS};
use k8s_openapi::api::networking::v1::{
    IPBlock, NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort,
    NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use pd_crds::PdDeployment;
use pd_protocol::labels;
use std::collections::BTreeMap;

/// Where clients and Prometheus go; a pod has those of its kind.
const PORTS_OF_ALL: [&str; 3] = [PORT_HTTP, PORT_HTTPS, PORT_METRICS];

/// Who may reach admin ports besides the deployment's own pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Admins {
    /// Where the operator runs; nothing outside a cluster.
    pub(crate) operator_namespace: Option<String>,
    /// Address blocks, such as the API server's, through which `kubectl pd` asks.
    pub(crate) blocks: Vec<String>,
}

/// The policy of one component's pods.
pub(crate) fn build_policy(
    deployment: &PdDeployment,
    component: Component,
    admins: &Admins,
) -> NetworkPolicy {
    let own = LabelSelector {
        match_labels: Some(BTreeMap::from([(
            labels::DEPLOYMENT.to_owned(),
            deployment.name_any(),
        )])),
        ..LabelSelector::default()
    };
    let own = NetworkPolicyPeer {
        pod_selector: Some(own),
        ..NetworkPolicyPeer::default()
    };
    let admins = admins.peers();
    let rules = [
        // Workers among themselves, and routers to them; nobody of a deployment calls its routers.
        (component != Component::Router).then(|| rule(vec![own], &[])),
        Some(rule(Vec::new(), &PORTS_OF_ALL)),
        // A rule without a peer would let everyone in.
        (!admins.is_empty()).then(|| rule(admins, &[PORT_ADMIN])),
    ];
    NetworkPolicy {
        metadata: component.metadata(deployment, component.object_name(deployment)),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(component.selector(deployment)),
            policy_types: Some(vec!["Ingress".to_owned()]),
            ingress: Some(rules.into_iter().flatten().collect()),
            egress: None,
        }),
    }
}

/// Connections from anyone if `from` is empty, to every port if `ports` is.
fn rule(from: Vec<NetworkPolicyPeer>, ports: &[&str]) -> NetworkPolicyIngressRule {
    let ports = ports.iter().map(|port| NetworkPolicyPort {
        port: Some(IntOrString::String((*port).to_owned())),
        ..NetworkPolicyPort::default()
    });
    let ports: Vec<NetworkPolicyPort> = ports.collect();
    NetworkPolicyIngressRule {
        from: Some(from).filter(|from| !from.is_empty()),
        ports: Some(ports).filter(|ports| !ports.is_empty()),
    }
}

// === impl Admins ===

impl Admins {
    fn peers(&self) -> Vec<NetworkPolicyPeer> {
        let labels = |pairs: &[(&str, &str)]| LabelSelector {
            match_labels: Some(
                pairs
                    .iter()
                    .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                    .collect(),
            ),
            ..LabelSelector::default()
        };
        let operator = self
            .operator_namespace
            .as_ref()
            .map(|namespace| NetworkPolicyPeer {
                namespace_selector: Some(labels(&[("kubernetes.io/metadata.name", namespace)])),
                pod_selector: Some(labels(&[
                    ("app.kubernetes.io/name", "pdserve"),
                    ("app.kubernetes.io/component", "operator"),
                ])),
                ..NetworkPolicyPeer::default()
            });
        let blocks = self.blocks.iter().map(|cidr| NetworkPolicyPeer {
            ip_block: Some(IPBlock {
                cidr: cidr.clone(),
                except: None,
            }),
            ..NetworkPolicyPeer::default()
        });
        operator.into_iter().chain(blocks).collect()
    }
}
