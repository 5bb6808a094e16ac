//! The routers' account: it may watch the pods of its namespace, and nothing else.

use super::component::Component;
use super::config::BuildConfig;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pd_crds::PdDeployment;

/// An account and what binds its role.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Account {
    pub(crate) account: ServiceAccount,
    pub(crate) binding: RoleBinding,
}

/// Name of the account that earlier operators made for each deployment.
pub(crate) fn former_account_name(deployment: &PdDeployment) -> String {
    Component::Router.object_name(deployment)
}

/// Builds the account that earlier operators made for each deployment.
pub(crate) fn build_former_account(deployment: &PdDeployment, config: &BuildConfig) -> Account {
    let name = former_account_name(deployment);
    build_account(Component::Router.metadata(deployment, name), config)
}

/// Builds an account of routers with the name, the namespace and the owner in `metadata`.
pub(super) fn build_account(metadata: ObjectMeta, config: &BuildConfig) -> Account {
    let kind = if config.namespaced {
        "Role"
    } else {
        "ClusterRole"
    };
    let subject = Subject {
        kind: "ServiceAccount".to_owned(),
        name: metadata.name.clone().unwrap_or_default(),
        namespace: metadata.namespace.clone(),
        api_group: None,
    };
    Account {
        account: ServiceAccount {
            metadata: metadata.clone(),
            automount_service_account_token: Some(false),
            ..ServiceAccount::default()
        },
        binding: RoleBinding {
            metadata,
            role_ref: RoleRef {
                api_group: Some("rbac.authorization.k8s.io".to_owned()),
                kind: kind.to_owned(),
                name: config.router_role.clone(),
            },
            subjects: Some(vec![subject]),
        },
    }
}
