//! Facts about what a pod's own object says.

use super::*;
use k8s_openapi::api::core::v1::{PodCondition, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pd_crds::document;
use std::collections::BTreeMap;

fn mk_deployment() -> PdDeployment {
    let text = "apiVersion: pdserve.io/v1alpha1
kind: PDDeployment
metadata: {name: tiny, namespace: ns}
spec: {model: {source: {hostPath: {path: /m.gguf}}}, pools: {}, drain: {timeoutSeconds: 60}}
";
    document::parse(text).unwrap()
}

fn mk_pod(name: &str, role: &str, conditions: &[&str]) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.name = Some(name.to_owned());
    pod.metadata.labels = Some(BTreeMap::from([
        (labels::ROLE.to_owned(), role.to_owned()),
        (labels::REVISION.to_owned(), "a".to_owned()),
    ]));
    let condition = |name: &&str| PodCondition {
        type_: (*name).to_owned(),
        status: "True".to_owned(),
        ..PodCondition::default()
    };
    pod.status = Some(PodStatus {
        phase: Some("Running".to_owned()),
        conditions: Some(conditions.iter().map(condition).collect()),
        ..PodStatus::default()
    });
    pod
}

fn facts(pod: Pod) -> PodFacts {
    pod_facts(&mk_deployment(), Arc::new(pod), &Nodes::default()).expect("one of ours")
}

async fn observed(pod: Pod, now: Timestamp) -> ObservedPod {
    let admin = Admin::new(String::new());
    let facts = [facts(pod)];
    let mut observed = observe(&mk_deployment(), &facts, &admin, &Probes::new(), now).await;
    observed.pods.remove(0)
}

#[test]
fn a_pod_is_known_by_its_role_and_name() {
    let pod = mk_pod("tiny-prefill-2-7", "prefill", &[]);
    let slot = Slot {
        ordinal: 2,
        incarnation: 7,
    };
    assert_eq!(facts(pod).slot, Some(slot));
    let stray = mk_pod("tiny-prefill-x", "prefill", &[]);
    assert_eq!(
        pod_facts(&mk_deployment(), Arc::new(stray), &Nodes::default()),
        None
    );
    let router = mk_pod("tiny-router-5d4f-abcde", "router", &["Ready"]);
    assert!(facts(router).ready());
}

#[tokio::test]
async fn a_worker_serves_only_with_its_gate_latched() {
    let now = Timestamp::UNIX_EPOCH;
    let pod = mk_pod("tiny-decode-0-1", "decode", &["ContainersReady"]);
    assert!(!observed(pod, now).await.serves(), "no router is there");
    let latched = ["ContainersReady", ROUTABLE_GATE];
    let pod = mk_pod("tiny-decode-0-1", "decode", &latched);
    assert!(observed(pod, now).await.serves());
}

#[tokio::test]
async fn a_deleted_pod_is_on_its_way_whoever_deleted_it() {
    let mut pod = mk_pod("tiny-decode-0-1", "decode", &["ContainersReady"]);
    pod.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    let leaving = observed(pod, Timestamp::UNIX_EPOCH).await.leaving;
    assert!(leaving.is_some_and(|leaving| leaving.terminated));
}

#[tokio::test]
async fn a_leaving_pod_without_an_address_never_served() {
    let mut pod = mk_pod("tiny-decode-0-1", "decode", &[]);
    pod.annotations_mut().insert(
        labels::LEAVING_SINCE.to_owned(),
        "1970-01-01T00:00:00Z".to_owned(),
    );
    let late = Timestamp::from_second(61).unwrap();
    let leaving = observed(pod.clone(), late).await.leaving.unwrap();
    assert!(leaving.drained && leaving.past_deadline);
    let early = Timestamp::from_second(59).unwrap();
    assert!(!observed(pod, early).await.leaving.unwrap().past_deadline);
}

#[tokio::test]
async fn an_ended_pod_is_replaced() {
    let mut pod = mk_pod("tiny-decode-0-1", "decode", &[ROUTABLE_GATE]);
    pod.status.get_or_insert_default().phase = Some("Failed".to_owned());
    let leaving = observed(pod, Timestamp::UNIX_EPOCH).await.leaving.unwrap();
    assert!(leaving.drained && !leaving.terminated);
}
