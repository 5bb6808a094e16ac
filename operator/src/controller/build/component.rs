//! The components of a deployment, and the labels by which their objects are found.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt};
use pd_crds::{PdDeployment, PoolRole};
use pd_protocol::Role;
use pd_protocol::labels;
use std::collections::BTreeMap;

/// A part of a deployment that runs as pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Component {
    Router,
    Prefill,
    Decode,
}

impl From<PoolRole> for Component {
    fn from(role: PoolRole) -> Self {
        match role {
            PoolRole::Prefill => Self::Prefill,
            PoolRole::Decode => Self::Decode,
        }
    }
}

// === impl Component ===

impl Component {
    pub(crate) const ALL: [Self; 3] = [Self::Router, Self::Prefill, Self::Decode];

    /// Value of the role label and part of every name.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Router => "router",
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        }
    }

    /// The role under which a router registers a pod of this component; `None` for routers.
    pub(crate) fn worker_role(self) -> Option<Role> {
        match self {
            Self::Router => None,
            Self::Prefill => Some(Role::Prefill),
            Self::Decode => Some(Role::Decode),
        }
    }

    /// The pool of the component's pods; `None` for routers.
    pub(crate) fn pool_role(self) -> Option<PoolRole> {
        match self {
            Self::Router => None,
            Self::Prefill => Some(PoolRole::Prefill),
            Self::Decode => Some(PoolRole::Decode),
        }
    }

    /// Name of the component's objects.
    pub(crate) fn object_name(self, deployment: &PdDeployment) -> String {
        format!("{}-{}", deployment.name_any(), self.as_str())
    }

    /// Labels that select the component's pods, and never change.
    pub(crate) fn selector_labels(self, deployment: &PdDeployment) -> BTreeMap<String, String> {
        BTreeMap::from([
            (labels::DEPLOYMENT.to_owned(), deployment.name_any()),
            (labels::ROLE.to_owned(), self.as_str().to_owned()),
        ])
    }

    pub(crate) fn selector(self, deployment: &PdDeployment) -> LabelSelector {
        LabelSelector {
            match_labels: Some(self.selector_labels(deployment)),
            ..LabelSelector::default()
        }
    }

    /// All labels of the component's objects.
    pub(crate) fn labels(self, deployment: &PdDeployment) -> BTreeMap<String, String> {
        let mut all = common_labels(deployment, self.as_str());
        all.extend(self.selector_labels(deployment));
        all
    }

    /// Metadata of an object that the deployment owns.
    pub(crate) fn metadata(self, deployment: &PdDeployment, name: String) -> ObjectMeta {
        ObjectMeta {
            labels: Some(self.labels(deployment)),
            ..owned(deployment, self.as_str(), name)
        }
    }
}

/// Metadata of an object that the deployment owns and that is of no component.
pub(super) fn owned(deployment: &PdDeployment, part: &str, name: String) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: deployment.namespace(),
        labels: Some(common_labels(deployment, part)),
        owner_references: owner(deployment).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    }
}

fn common_labels(deployment: &PdDeployment, part: &str) -> BTreeMap<String, String> {
    let name = deployment.name_any();
    let all = [
        (labels::DEPLOYMENT, name.as_str()),
        ("app.kubernetes.io/name", "pdserve"),
        ("app.kubernetes.io/instance", &name),
        ("app.kubernetes.io/component", part),
        labels::MANAGED_BY,
    ];
    let all = all.into_iter();
    all.map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// Only an object that an apiserver has stored has a UID to refer to.
fn owner(deployment: &PdDeployment) -> Option<OwnerReference> {
    deployment.controller_owner_ref(&())
}
