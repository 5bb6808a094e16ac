//! Who sets the number of routers: this operator as long as the spec names one, and from then on
//! the autoscaler of the Deployment, such as a HorizontalPodAutoscaler.
//!
//! What one manager alone applied and does not apply any more is removed, and a Deployment without a
//! number has one pod: fifty routers would be one until its next decision. So the
//! number that stands is first applied in another name, which keeps it and never changes it.

use super::apply::{MANAGER, Writer};
use super::error::{ApplyError, failed};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::api::{Patch, PatchParams};
use kube::{Resource, ResourceExt};
use serde_json::json;

/// Field manager of a number of routers that was handed over.
const KEEPER: &str = "pd-operator-handover";

/// Keeps the number of routers from falling to one where `wanted` names none any more.
pub(crate) async fn hand_over_replicas(
    writer: &Writer<'_>,
    wanted: &Deployment,
) -> Result<(), ApplyError> {
    if wanted.spec.as_ref().is_none_or(|it| it.replicas.is_some()) {
        return Ok(());
    }
    let name = wanted.name_any();
    let Some(stored) = writer.context.index.deployments.find(&writer.key(), &name) else {
        return Ok(());
    };
    if writer.is_as_applied(&writer.uid(), wanted, &stored) {
        return Ok(());
    }
    let live = writer.live::<Deployment>(&name).await?;
    let Some(live) = live.filter(|live| applies_replicas(live.managed_fields())) else {
        return Ok(());
    };
    let replicas = live.spec.and_then(|spec| spec.replicas);
    let kept = json!({
        "apiVersion": Deployment::api_version(&()),
        "kind": Deployment::kind(&()),
        "metadata": {"name": name, "uid": live.metadata.uid},
        "spec": {"replicas": replicas},
    });
    let params = PatchParams::apply(KEEPER).force();
    writer
        .api::<Deployment>()
        .patch_metadata(&name, &params, &Patch::Apply(kept))
        .await
        .map_err(|source| failed::<Deployment>("apply", &name, source))?;
    Ok(())
}

/// Whether this operator applied the number of pods.
fn applies_replicas(managed: &[ManagedFieldsEntry]) -> bool {
    managed.iter().any(|entry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        let is_applied = entry.operation.as_deref() == Some("Apply");
        is_applied
            && entry.manager.as_deref() == Some(MANAGER)
            && fields.is_some_and(|fields| !fields["f:spec"]["f:replicas"].is_null())
    })
}

#[cfg(test)]
mod tests {
    //! Facts about who owns a number.

    use super::*;
    use serde_json::Value;

    fn mk_entry(manager: &str, operation: &str, fields: Value) -> ManagedFieldsEntry {
        serde_json::from_value(json!({
            "manager": manager, "operation": operation, "fieldsV1": fields,
        }))
        .expect("an entry")
    }

    #[test]
    fn only_a_number_that_this_operator_applied_is_handed_over() {
        let replicas = json!({"f:spec": {"f:replicas": {}}});
        let rest = json!({"f:spec": {"f:template": {}}});
        for (manager, operation, fields, ours) in [
            (MANAGER, "Apply", &replicas, true),
            (MANAGER, "Apply", &rest, false),
            (MANAGER, "Update", &replicas, false),
            ("kube-controller-manager", "Update", &replicas, false),
            (KEEPER, "Apply", &replicas, false),
        ] {
            let entry = mk_entry(manager, operation, fields.clone());
            assert_eq!(applies_replicas(&[entry]), ours, "{manager} {operation}");
        }
    }
}
