//! Network policies: who may open connections to the pods of a namespace's deployments.
//!
//! Workers reach each other on every port, because a KV transfer takes ports as it needs them. Those that know their
//! peers are reached by all deployments of the namespace: a policy cannot ask whether two pods are of one deployment
//! without being one per deployment. Those of plain peers admit everybody to their bootstrap server and KV, so their
//! deployment has a policy of its own, and only its own pods reach them. Clients reach the routers from anywhere: who may ask
//! is the API keys' to say. The operator reaches all, and the namespaces that scrape, the workers' metrics. Where no
//! network plugin enforces policies they do nothing.

use super::component::{Component, owned};
use super::pod::{PORT_ADMIN, PORT_HTTP, PORT_HTTPS, PORT_METRICS};
use k8s_openapi::api::networking::v1::{
    IPBlock, NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort,
    NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    LabelSelector, LabelSelectorRequirement, ObjectMeta,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use pd_crds::PdDeployment;
use pd_protocol::labels;

/// Where clients of a router and Prometheus go; it has those of its kind.
const CLIENT_PORTS: [&str; 3] = [PORT_HTTP, PORT_HTTPS, PORT_METRICS];

const WORKERS: [Component; 2] = [Component::Prefill, Component::Decode];

/// What peers other than the deployments' own pods may reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Admins {
    /// Where the operator runs; nothing outside a cluster.
    pub(crate) operator_namespace: Option<String>,
    /// Address blocks, such as the API server's, through which `kubectl pd` asks.
    pub(crate) blocks: Vec<String>,
    /// Namespaces whose pods scrape workers.
    pub(crate) metrics_namespaces: Vec<String>,
}

/// The policy of all routers of a namespace.
pub(super) fn build_router_policy(metadata: ObjectMeta, admins: &Admins) -> NetworkPolicy {
    let rules = [
        Some(from_anyone(&CLIENT_PORTS)),
        from(admins.peers(), &[PORT_ADMIN]),
    ];
    build_policy(metadata, of_roles(&[Component::Router]), rules)
}

/// The policy of a deployment's workers that do not know their peers.
pub(super) fn build_own_policy(deployment: &PdDeployment, admins: &Admins) -> NetworkPolicy {
    let of_this = |components: &[Component]| LabelSelector {
        match_labels: Some([(labels::DEPLOYMENT.to_owned(), deployment.name_any())].into()),
        ..of_roles(components)
    };
    let pods = |components: &[Component]| {
        vec![NetworkPolicyPeer {
            pod_selector: Some(of_this(components)),
            ..NetworkPolicyPeer::default()
        }]
    };
    let rules = [
        from(pods(&WORKERS), &[]),
        from(pods(&[Component::Router]), &[PORT_HTTP]),
        from(admins.peers(), &[PORT_ADMIN, PORT_HTTP]),
        from(admins.scrapers(), &[PORT_HTTP]),
    ];
    let mut workers = of_this(&WORKERS);
    let labelled = workers.match_labels.get_or_insert_default();
    labelled.insert(labels::OWN_POLICY.to_owned(), "true".to_owned());
    let name = format!("{}-workers", deployment.name_any());
    build_policy(owned(deployment, "workers", name), workers, rules)
}

/// The policy of the workers of a namespace that have none of their own.
pub(super) fn build_worker_policy(metadata: ObjectMeta, admins: &Admins) -> NetworkPolicy {
    let peers = NetworkPolicyPeer {
        pod_selector: Some(of_roles(&Component::ALL)),
        ..NetworkPolicyPeer::default()
    };
    let rules = [
        from(vec![peers], &[]),
        from(admins.peers(), &[PORT_ADMIN, PORT_HTTP]),
        from(admins.scrapers(), &[PORT_HTTP]),
    ];
    let mut workers = of_roles(&WORKERS);
    let expressions = workers.match_expressions.get_or_insert_default();
    expressions.push(LabelSelectorRequirement {
        key: labels::OWN_POLICY.to_owned(),
        operator: "DoesNotExist".to_owned(),
        values: None,
    });
    build_policy(metadata, workers, rules)
}

fn build_policy(
    metadata: ObjectMeta,
    pods: LabelSelector,
    rules: impl IntoIterator<Item = Option<NetworkPolicyIngressRule>>,
) -> NetworkPolicy {
    NetworkPolicy {
        metadata,
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(pods),
            policy_types: Some(vec!["Ingress".to_owned()]),
            ingress: Some(rules.into_iter().flatten().collect()),
            egress: None,
        }),
    }
}

/// By a label that a `podTemplate` cannot change.
fn of_roles(components: &[Component]) -> LabelSelector {
    let roles = components.iter().map(|role| role.as_str().to_owned());
    LabelSelector {
        match_expressions: Some(vec![LabelSelectorRequirement {
            key: labels::ROLE.to_owned(),
            operator: "In".to_owned(),
            values: Some(roles.collect()),
        }]),
        ..LabelSelector::default()
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
    /// Whether no peer at all could reach an admin port.
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
