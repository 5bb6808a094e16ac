//! Network policies: who may open connections to the pods of a deployment.
//!
//! Its own pods reach each other on every port, because a KV transfer takes ports as it needs them.
//! Clients reach the routers from anywhere: who may ask is the API keys' to say. Workers ask for no
//! key, so besides their deployment only the operator reaches them, and the namespaces that scrape.
//! The admin port is the operator's. Where no network plugin enforces policies they do nothing.

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

/// Where clients of a router and Prometheus go; it has those of its kind.
const CLIENT_PORTS: [&str; 3] = [PORT_HTTP, PORT_HTTPS, PORT_METRICS];

/// Who may reach what besides the deployment's own pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Admins {
    /// Where the operator runs; nothing outside a cluster.
    pub(crate) operator_namespace: Option<String>,
    /// Address blocks, such as the API server's, through which `kubectl pd` asks.
    pub(crate) blocks: Vec<String>,
    /// Namespaces whose pods scrape workers.
    pub(crate) metrics_namespaces: Vec<String>,
}

/// The policy of one component's pods.
pub(crate) fn build_policy(
    deployment: &PdDeployment,
    component: Component,
    admins: &Admins,
) -> NetworkPolicy {
    let own = NetworkPolicyPeer {
        pod_selector: Some(labelled(&[(labels::DEPLOYMENT, &deployment.name_any())])),
        ..NetworkPolicyPeer::default()
    };
    let (peers, scrapers) = (admins.peers(), admins.scrapers());
    let rules = match component {
        Component::Router => vec![Some(from_anyone(&CLIENT_PORTS)), from(peers, &[PORT_ADMIN])],
        Component::Prefill | Component::Decode => vec![
            from(vec![own], &[]),
            from(peers, &[PORT_ADMIN, PORT_HTTP]),
            from(scrapers, &[PORT_HTTP]),
        ],
    };
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

/// Lets peers connect to ports, or to every port if none is named; nothing if there is no peer.
fn from(peers: Vec<NetworkPolicyPeer>, ports: &[&str]) -> Option<NetworkPolicyIngressRule> {
    let rule = NetworkPolicyIngressRule {
        from: Some(peers).filter(|peers| !peers.is_empty()),
        ..from_anyone(ports)
    };
    // Without a peer it would let everyone in.
    rule.from.is_some().then_some(rule)
}

fn from_anyone(ports: &[&str]) -> NetworkPolicyIngressRule {
    let ports = ports.iter().map(|port| NetworkPolicyPort {
        port: Some(IntOrString::String((*port).to_owned())),
        ..NetworkPolicyPort::default()
    });
    let ports: Vec<NetworkPolicyPort> = ports.collect();
    NetworkPolicyIngressRule {
        from: None,
        ports: Some(ports).filter(|ports| !ports.is_empty()),
    }
}

// === impl Admins ===

impl Admins {
    /// Whether nobody at all could reach an admin port.
    pub(crate) fn lock_out_the_operator(&self) -> bool {
        self.operator_namespace.is_none() && self.blocks.is_empty()
    }

    fn peers(&self) -> Vec<NetworkPolicyPeer> {
        let operator = self.operator_namespace.as_ref().map(|namespace| {
            let mut operator = pods_of(namespace);
            operator.pod_selector = Some(labelled(&[
                ("app.kubernetes.io/name", "pdserve"),
                ("app.kubernetes.io/component", "operator"),
            ]));
            operator
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

    fn scrapers(&self) -> Vec<NetworkPolicyPeer> {
        let namespaces = self.metrics_namespaces.iter();
        namespaces.map(|namespace| pods_of(namespace)).collect()
    }
}

fn pods_of(namespace: &str) -> NetworkPolicyPeer {
    NetworkPolicyPeer {
        namespace_selector: Some(labelled(&[("kubernetes.io/metadata.name", namespace)])),
        ..NetworkPolicyPeer::default()
    }
}

fn labelled(labels: &[(&str, &str)]) -> LabelSelector {
    let labels = labels
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    LabelSelector {
        match_labels: Some(labels.collect()),
        ..LabelSelector::default()
    }
}
