//! What the deployments of a namespace share: written when the first of them is reconciled, written
//! again when it is missing or changed, and removed after the last of them has gone.

use super::apply::{Holder, Writer, delete_params};
use super::binding::bind;
use super::children::{Child, Children, Stored, shared_key};
use super::context::Context;
use super::error::ApplyError;
use super::facts::PodFacts;
use super::index::Index;
use super::memory::remembered_as;
use crate::controller::build::account::{Account, build_former_account, former_account_name};
use crate::controller::build::component::Component;
use crate::controller::build::shared::{Shared, build_shared};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Api, ResourceExt};
use pd_crds::PdDeployment;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::sleep;

/// Pause after shared objects could not be removed.
const TIDY_AGAIN: Duration = Duration::from_secs(10);

/// What becomes of the account that an earlier operator gave a deployment alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FormerAccount {
    /// Routers are made to run under it: their template is of an earlier operator.
    Kept,
    /// Routers under it are being replaced, and need it until then.
    Leaves,
    /// No router runs under it.
    Unused,
}

/// The deployments that a change concerns: of what those of a namespace share, all of them.
pub(crate) fn deployments_of(
    key: ObjectRef<PdDeployment>,
    listed: &Store<PdDeployment>,
) -> Vec<ObjectRef<PdDeployment>> {
    if !key.name.is_empty() {
        return vec![key];
    }
    let all = listed.state().into_iter();
    let of_namespace = all.filter(|deployment| deployment.namespace() == key.namespace);
    of_namespace
        .map(|deployment| ObjectRef::from_obj(&*deployment))
        .collect()
}

/// Removes what was shared in namespaces that have no deployment any more, whenever one has `gone`.
pub(crate) async fn tidy_namespaces(
    context: Arc<Context>,
    listed: Store<PdDeployment>,
    gone: Arc<Notify>,
) -> Infallible {
    loop {
        gone.notified().await;
        let removed = context.remove_shared(|namespace| is_deserted(namespace, &listed));
        if let Err(error) = removed.await {
            tracing::warn!(%error, "could not remove shared objects of a namespace without PDDeployments");
            sleep(TIDY_AGAIN).await;
            gone.notify_one();
        }
    }
}

fn is_deserted(namespace: &str, listed: &Store<PdDeployment>) -> bool {
    let in_it = |is: &PdDeployment| is.namespace().as_deref() == Some(namespace);
    listed.find(in_it).is_none()
}

// === impl FormerAccount ===

impl FormerAccount {
    /// As the pods say that run; `wanted` is what routers are to be.
    pub(crate) fn of(deployment: &PdDeployment, wanted: &Deployment, pods: &[PodFacts]) -> Self {
        let name = former_account_name(deployment);
        let template = wanted.spec.as_ref().map(|it| &it.template);
        let pod = template.and_then(|it| it.spec.as_ref());
        let account = pod.and_then(|it| it.service_account_name.as_deref());
        let mut routers = pods
            .iter()
            .filter(|facts| facts.component == Component::Router && !facts.has_ended());
        if account == Some(name.as_str()) {
            Self::Kept
        } else if routers.any(|facts| facts.account() == Some(name.as_str())) {
            Self::Leaves
        } else {
            Self::Unused
        }
    }
}

/// Writes what the deployments of this namespace share, unless it is there.
pub(crate) async fn apply_shared(writer: &Writer<'_>) -> Result<(), ApplyError> {
    let context = writer.context;
    let wanted = build_shared(Some(writer.namespace), &context.config);
    if has_shared(writer, &wanted) {
        return Ok(());
    }
    // The second writer finds it there.
    let _turn = context.sharing.lock().await;
    let Shared { account, policies } = &wanted;
    let holder = Holder::Namespace;
    if !writer.is_current(holder, &account.account, &context.index.accounts) {
        writer
            .apply_for(holder, &account.account, &context.index.accounts)
            .await?;
    }
    if !writer.is_current(holder, &account.binding, &context.index.bindings) {
        bind(writer, &account.binding, holder).await?;
    }
    for policy in policies {
        writer
            .apply_for(holder, policy, &context.index.policies)
            .await?;
    }
    let key = shared_key(writer.namespace);
    for stored in unwanted(&wanted, &context.index.policies.of(&key)) {
        let uid = Some(stored.uid.clone());
        if writer.remove::<NetworkPolicy>(&stored.name, uid).await? {
            context.index.policies.take(&key, &stored.name);
        }
    }
    Ok(())
}

fn has_shared(writer: &Writer<'_>, wanted: &Shared) -> bool {
    let (context, holder) = (writer.context, Holder::Namespace);
    let Shared { account, policies } = wanted;
    let mut wanted_policies = policies.iter();
    writer.is_current(holder, &account.account, &context.index.accounts)
        && writer.is_current(holder, &account.binding, &context.index.bindings)
        && wanted_policies.all(|it| writer.is_current(holder, it, &context.index.policies))
        && context
            .index
            .policies
            .of(&shared_key(writer.namespace))
            .len()
            == policies.len()
}

/// Keeps up the account of this deployment alone.
pub(crate) async fn keep_former_account(writer: &Writer<'_>) -> Result<(), ApplyError> {
    let context = writer.context;
    let Account { account, binding } = build_former_account(writer.deployment, &context.config);
    writer.apply(&account, &context.index.accounts).await?;
    bind(writer, &binding, Holder::Deployment).await
}

/// Removes what the deployment had alone before its namespace shared it.
pub(crate) async fn remove_former(
    writer: &Writer<'_>,
    account: FormerAccount,
) -> Result<(), ApplyError> {
    let Index {
        accounts, bindings, ..
    } = &writer.context.index;
    if account == FormerAccount::Unused {
        writer.remove_rest(bindings, |_| false).await?;
        writer.remove_rest(accounts, |_| false).await?;
    }
    Ok(())
}

/// Policies that are stored and not wanted.
fn unwanted<'a>(
    wanted: &Shared,
    stored: &'a [Arc<Stored<NetworkPolicy>>],
) -> Vec<&'a Stored<NetworkPolicy>> {
    let names: BTreeSet<String> = wanted.policies.iter().map(ResourceExt::name_any).collect();
    let stored = stored.iter().map(Arc::as_ref);
    stored
        .filter(|stored| !names.contains(&stored.name))
        .collect()
}

// === impl Context ===

impl Context {
    /// Removes the shared objects of every namespace that is deserted. A deployment that is made
    /// meanwhile writes them again.
    async fn remove_shared(&self, is_deserted: impl Fn(&str) -> bool) -> kube::Result<()> {
        let _turn = self.sharing.lock().await;
        let kinds = [
            self.index.bindings.sharing_namespaces(),
            self.index.accounts.sharing_namespaces(),
            self.index.policies.sharing_namespaces(),
        ];
        let namespaces: BTreeSet<String> = kinds.into_iter().flatten().collect();
        for namespace in namespaces.iter().filter(|it| is_deserted(it)) {
            self.remove_shared_of::<RoleBinding>(namespace, &self.index.bindings)
                .await?;
            self.remove_shared_of::<ServiceAccount>(namespace, &self.index.accounts)
                .await?;
            self.remove_shared_of::<NetworkPolicy>(namespace, &self.index.policies)
                .await?;
            self.memories.forget(&remembered_as(namespace));
            tracing::info!(
                namespace,
                "removed the shared objects of a namespace without PDDeployments"
            );
        }
        Ok(())
    }

    async fn remove_shared_of<K: Child>(
        &self,
        namespace: &str,
        known: &Children<Stored<K>>,
    ) -> kube::Result<()> {
        let key = shared_key(namespace);
        let api: Api<K> = Api::namespaced(self.client.clone(), namespace);
        for stored in known.of(&key) {
            let params = delete_params(Some(stored.uid.clone()));
            match api.delete(&stored.name, &params).await {
                Ok(_) => known.take(&key, &stored.name),
                // Gone, or already another one, which the watch reports.
                Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
