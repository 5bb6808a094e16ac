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
    use crate::cluster::fake::{FakeApi, mk_config, mk_deployment, reconciled};
    use crate::cluster::written_statuses::DEBOUNCE;
    use k8s_openapi::jiff::Timestamp;
    use pd_crds::PdDeploymentStatus;
    use pd_crds::scheduling::GangScheduling;
    use serde_json::{Value, json};

    const LONG_AGO: &str = "2020-01-01T00:00:00Z";

    /// What the status says of a deployment whose workers wait for long, in the words of a Workload.
    async fn progressing(words: &str) -> (Value, Value) {
        let api = FakeApi::default();
        let mut config = mk_config();
        config.site.gangs.kueue = Some("v1beta2".to_owned());
        let mut deployment = mk_deployment("a", "ns");
        let scheduling = &mut deployment.spec.scheduling;
        scheduling.gang = GangScheduling::Kueue;
        scheduling.queue = Some("gpus".to_owned());
        let context = Arc::new(api.context(config.clone()));
        reconciled(&api, &context, &deployment).await;
        for path in api.stored(|object| object["kind"] == "Pod") {
            let mut pod = api.find(&path);
            pod["metadata"]["creationTimestamp"] = json!(LONG_AGO);
            let gated = json!({
                "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
                "message": "gated",
            });
            pod["status"] = json!({"phase": "Pending", "conditions": [gated]});
            let group = &pod["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"];
            let group = group.as_str().expect("a group");
            let condition = json!({"type": "QuotaReserved", "status": "False", "message": words});
            api.put(
                &format!("/apis/kueue.x-k8s.io/v1beta2/namespaces/ns/workloads/{group}"),
                json!({
                    "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
                    "metadata": {"name": group}, "status": {"conditions": [condition]},
                }),
            );
            api.put(&path, pod);
        }
        let moves = json!({
            "type": "Progressing", "status": "True", "reason": "Moving", "message": "",
            "lastTransitionTime": LONG_AGO,
        });
        deployment.status = Some(PdDeploymentStatus {
            conditions: vec![serde_json::from_value(moves).expect("a condition")],
            ..PdDeploymentStatus::default()
        });
        // An operator that has just started.
        let context = Arc::new(api.context(config));
        api.report_pods(&context, &deployment);
        api.report_pools(&context, &deployment);
        reconciled(&api, &context, &deployment).await;
        // What is news is written a little later.
        tokio::time::sleep(DEBOUNCE).await;
        reconciled(&api, &context, &deployment).await;
        let path = "/apis/pdserve.io/v1alpha1/namespaces/ns/pddeployments/a";
        let status = api.find(path)["status"].clone();
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        let mut conditions = conditions.into_iter();
        let found = conditions.find(|it| it["type"] == "Progressing");
        let found = found.expect("a condition");
        (found["reason"].clone(), found["message"].clone())
    }

    #[tokio::test]
    async fn to_wait_in_a_queue_is_said_in_kueues_words_and_is_no_standstill() {
        let age = Timestamp::now().duration_since(LONG_AGO.parse().expect("a time"));
        let deadline = mk_deployment("a", "ns")
            .spec
            .rollout
            .progress_deadline_seconds;
        assert!(age.as_secs() > i64::from(deadline));
        let (reason, message) = progressing("2 more needed").await;
        assert_eq!(reason, "Queued");
        let message = message.as_str().expect("a message");
        assert!(message.starts_with("gang a-"), "{message}");
        let end = " waits in the queue gpus: 2 more needed";
        assert!(message.ends_with(end), "{message}");
    }

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
