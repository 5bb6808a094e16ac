//! What Kueue says of gangs that wait for quota: the verdict of its Workload, which has the gang's name.

use super::apply::Writer;
use super::error::bounded;
use super::snapshot::Snapshot;
use crate::controller::build::gang::{Gang, GangScheduler};
use crate::controller::site::GangApis;
use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use pd_crds::pod::Pod;
use pd_crds::stuck::{Cause, Stuck, stuck};
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;

/// How often it is asked while something waits.
pub(super) const INTERVAL: Duration = Duration::from_secs(5);

/// What of a condition is read.
#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    name: String,
    status: String,
    #[serde(default)]
    message: String,
}

/// Why the first gang waits that does, in Kueue's words.
pub(super) async fn verdict(writer: &Writer<'_>, snapshot: &Snapshot<'_>) -> Option<Stuck> {
    let waits = |pod: &Arc<Pod>| stuck(pod).is_some_and(|it| it.cause == Cause::Queued);
    let mut workers = snapshot.pods.iter().filter(|facts| facts.is_worker());
    let first = workers.find(|facts| !facts.leaves() && facts.members().any(waits))?;
    let (gang, role) = (Gang::of(&first.pod.metadata)?, first.component.pool_role()?);
    let scheduler = snapshot.effective.resources.pool(role).gangs.as_ref()?;
    let queue = match scheduler {
        GangScheduler::Kueue { queue, .. } => queue,
        GangScheduler::Kubernetes(_) | GangScheduler::Coscheduling | GangScheduler::Volcano => {
            return None;
        }
    };
    let version = writer.context.config.site.gangs.kueue.as_deref()?;
    let kind = GroupVersionKind::gvk(GangApis::KUEUE, version, "Workload");
    let api = ApiResource::from_gvk(&kind);
    let client = writer.context.client.clone();
    let api: Api<DynamicObject> = Api::namespaced_with(client, writer.namespace, &api);
    let why = match api.get_opt(&gang.name).await {
        Ok(workload) => said(workload.as_ref()),
        Err(error) => format!("its Workload cannot be read: {error}"),
    };
    let message = format!("gang {} waits in the queue {queue}: {why}", gang.name);
    Some(Stuck {
        cause: Cause::Queued,
        message: bounded(&message),
    })
}

/// What a Workload says of why it waits.
fn said(workload: Option<&DynamicObject>) -> String {
    let Some(workload) = workload else {
        return "Kueue has no Workload for it yet; it makes one where its integration pod is on and its \
                managedJobsNamespaceSelector takes this namespace in"
            .to_owned();
    };
    let conditions = workload.data.pointer("/status/conditions").cloned();
    let conditions: Vec<Condition> = conditions
        .and_then(|it| serde_json::from_value(it).ok())
        .unwrap_or_default();
    let find = |name: &str, status: &str| {
        let mut conditions = conditions.iter();
        conditions.find(|it| it.name == name && it.status == status)
    };
    if find("Admitted", "True").is_some() {
        "it is admitted, and its pods are let go".to_owned()
    } else if find("QuotaReserved", "True").is_some() {
        "it has its quota, and waits for the queue's admission checks".to_owned()
    } else if let Some(refused) = find("QuotaReserved", "False") {
        refused.message.clone()
    } else {
        "Kueue has not looked at it yet".to_owned()
    }
}

#[cfg(test)]
mod tests {
    //! Facts about what a Workload says.

    use super::*;
    use serde_json::{Value, json};

    fn said_by(conditions: &Value) -> String {
        let workload = json!({
            "metadata": {"name": "a-1"}, "status": {"conditions": conditions},
        });
        said(Some(&serde_json::from_value(workload).expect("an object")))
    }

    #[test]
    fn a_workload_says_why_it_waits() {
        let condition = |name: &str, status: &str| json!({"type": name, "status": status, "reason": "Pending", "message": "2 more needed"});
        assert_eq!(
            said_by(&json!([condition("QuotaReserved", "False")])),
            "2 more needed"
        );
        let reserved = condition("QuotaReserved", "True");
        let checks = said_by(&json!([reserved.clone()]));
        assert!(checks.contains("admission checks"), "{checks}");
        let admitted = said_by(&json!([reserved, condition("Admitted", "True")]));
        assert!(admitted.contains("admitted"), "{admitted}");
        assert_eq!(said_by(&json!([])), "Kueue has not looked at it yet");
        assert!(said(None).contains("no Workload"));
    }
}
