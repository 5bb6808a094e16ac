//! The routers' own account: it may watch the pods of its namespace, and nothing else.

use super::BuildConfig;
use super::component::Component;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{RoleBinding, RoleRef, Subject};
use kube::ResourceExt;
use pd_crds::PdDeployment;

/// An account and what binds its role.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Account {
    pub(crate) account: ServiceAccount,
    pub(crate) binding: RoleBinding,
}

/// Name of the routers' account.
pub(crate) fn account_name(deployment: &PdDeployment) -> String {
    Component::Router.object_name(deployment)
}

/// Builds the account of a deployment's routers.
pub(crate) fn build_account(deployment: &PdDeployment, config: &BuildConfig) -> Account {
    let kind = if config.namespaced {
        "Role"
    } else {
        "ClusterRole"
    };
    let name = account_name(deployment);
    let metadata = Component::Router.metadata(deployment, name.clone());
    Account {
        account: ServiceAccount {
            metadata: metadata.clone(),
            automount_service_account_token: Some(false),
            ..ServiceAccount::default()
        },
        binding: RoleBinding {
            metadata,
            role_ref: RoleRef {
                api_group: "rbac.authorization.k8s.io".to_owned(),
                kind: kind.to_owned(),
                name: config.router_role.clone(),
            },
            subjects: Some(vec![Subject {
                kind: "ServiceAccount".to_owned(),
                name,
                namespace: deployment.namespace(),
                api_group: None,
            }]),
        },
    }
}
