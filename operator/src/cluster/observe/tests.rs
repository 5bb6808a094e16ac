//! Facts about what a pod's own object says.

use super::*;
use crate::cluster::facts::all_facts;
use crate::cluster::nodes::Nodes;
use crate::controller::build::slot::Slot;
use axum::Router;
use http::StatusCode;
use k8s_openapi::api::core::v1::PodCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use pd_crds::document;
use pd_crds::node_disposition::NodeDisposition;
use pd_crds::pod::{ContainerStatus, Pod, PodStatus};
use pd_identity::Peers;
use pd_protocol::labels::ROUTABLE_GATE;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::net::TcpListener;

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

fn mk_clients() -> Clients {
    Clients {
        admin: Some(Admin::new(String::new())),
        http: HttpClient::new(String::new(), Peers::Plain),
        probes: Probes::default(),
    }
}

fn facts(pod: Pod) -> PodFacts {
    facts_of(vec![pod]).remove(0)
}

fn facts_of(pods: Vec<Pod>) -> Vec<PodFacts> {
    let pods = pods.into_iter().map(Arc::new).collect();
    all_facts(&mk_deployment(), pods, &Nodes::default())
}

async fn observed(pod: Pod, now: Timestamp) -> ObservedPod {
    let facts = [facts(pod)];
    let mut observed = observe_pods(&mk_deployment(), &facts, &mk_clients(), now).await;
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
    assert_eq!(facts_of(vec![stray]), []);
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
async fn a_pod_that_any_client_deleted_is_leaving() {
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

/// A worker that was asked to leave at the epoch, and whose admin port is `first` + 1 of 127.0.0.1.
fn mk_leaving(first: u16) -> Pod {
    let mut pod = mk_pod(
        "tiny-decode-0-1",
        "decode",
        &["ContainersReady", ROUTABLE_GATE],
    );
    pod.status.get_or_insert_default().pod_ip = Some("127.0.0.1".to_owned());
    pod.annotations_mut().extend([
        (
            labels::LEAVING_SINCE.to_owned(),
            "1970-01-01T00:00:00Z".to_owned(),
        ),
        (labels::FIRST_PORT.to_owned(), first.to_string()),
    ]);
    pod
}

/// Serves one answer to everybody; gives the port before its own.
async fn answer(status: StatusCode, body: &'static str) -> u16 {
    let app = Router::new().fallback(move || async move { (status, body) });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(axum::serve(listener, app).into_future());
    port - 1
}

#[tokio::test]
async fn a_worker_is_drained_when_it_says_so_and_not_when_it_says_nothing() {
    let now = Timestamp::from_second(10).unwrap();
    let leaving = async |pod| observed(pod, now).await.leaving.unwrap();
    let drained = r#"{"state": "drained", "in_flight": 0}"#;
    let said = leaving(mk_leaving(answer(StatusCode::OK, drained).await)).await;
    assert!(said.drained && !said.unanswered);
    for status in [StatusCode::UNAUTHORIZED, StatusCode::SERVICE_UNAVAILABLE] {
        let refused = leaving(mk_leaving(answer(status, "no").await)).await;
        assert!(!refused.drained && refused.unanswered, "{status}");
    }
    let unused = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = unused.local_addr().unwrap().port();
    drop(unused);
    let gone = leaving(mk_leaving(port - 1)).await;
    assert!(!gone.drained && gone.unanswered);

    let mut starts = mk_leaving(port - 1);
    starts.status.get_or_insert_default().conditions = None;
    assert!(leaving(starts).await.drained, "it never served");
    let mut ended = mk_leaving(port - 1);
    let state = serde_json::json!({"name": "agent", "image": "", "imageID": "", "ready": false,
        "restartCount": 0, "state": {"terminated": {"exitCode": 137}}});
    let state: ContainerStatus = serde_json::from_value(state).unwrap();
    ended.status.get_or_insert_default().container_statuses = Some(vec![state]);
    assert!(leaving(ended).await.drained, "its process has ended");
}

#[tokio::test]
async fn an_engine_without_an_admin_port_drains_by_what_routers_say() {
    let mut pod = mk_leaving(1);
    let spec = serde_json::json!({"containers": [
        {"name": "agent", "ports": [{"name": "http", "containerPort": 30000}]}]});
    pod.spec = Some(serde_json::from_value(spec).unwrap());
    let leaving = observed(pod, Timestamp::UNIX_EPOCH).await.leaving.unwrap();
    assert!(leaving.by_routers && !leaving.drained);
}

#[test]
fn a_worker_gets_the_labels_by_which_an_autoscaler_counts() {
    let old = facts(mk_leaving(1)).lacking_labels();
    assert_eq!(
        old,
        BTreeMap::from([(labels::NODE_RANK, "0"), (labels::LEAVING, "true")])
    );
    let router = facts(mk_pod("tiny-router-5d4f-abcde", "router", &[]));
    assert!(router.lacking_labels().is_empty());
}

#[tokio::test]
async fn an_ended_pod_is_replaced() {
    let mut pod = mk_pod("tiny-decode-0-1", "decode", &[ROUTABLE_GATE]);
    pod.status.get_or_insert_default().phase = Some("Failed".to_owned());
    let leaving = observed(pod, Timestamp::UNIX_EPOCH).await.leaving.unwrap();
    assert!(leaving.drained && !leaving.terminated);
}

/// A replica of two nodes; one that is admitted was so as it is.
fn mk_group(conditions: &[&str]) -> [Pod; 2] {
    let mut leader = mk_pod("tiny-prefill-0-1", "prefill", conditions);
    leader.metadata.uid = Some("leader".to_owned());
    let mut follower = mk_pod("tiny-prefill-0-1-1", "prefill", conditions);
    follower.metadata.uid = Some("follower".to_owned());
    let rank = (labels::NODE_RANK.to_owned(), "1".to_owned());
    follower.labels_mut().extend([rank]);
    follower.owner_references_mut().push(OwnerReference {
        uid: "leader".to_owned(),
        ..OwnerReference::default()
    });
    leader
        .annotations_mut()
        .insert(labels::NODES.to_owned(), "2".to_owned());
    let digest = facts_of(vec![leader.clone(), follower.clone()])[0].members_digest();
    leader
        .annotations_mut()
        .insert(labels::MEMBERS.to_owned(), digest);
    [leader, follower]
}

fn restarted(mut pod: Pod, times: i32) -> Pod {
    let status = ContainerStatus {
        restart_count: times,
        ..ContainerStatus::default()
    };
    pod.status.get_or_insert_default().container_statuses = Some(vec![status]);
    pod
}

#[test]
fn a_replica_of_two_nodes_is_one_and_ready_when_both_are() {
    let [leader, follower] = mk_group(&["ContainersReady"]);
    let alone = &facts_of(vec![leader.clone()])[0];
    assert!(!alone.ready(), "its other node is not there");
    assert_eq!(alone.missing().collect::<Vec<_>>(), [1]);
    let both = facts_of(vec![follower.clone(), leader.clone()]);
    assert_eq!(both.len(), 1);
    assert!(both[0].ready() && both[0].missing().next().is_none());
    let mut starts = follower;
    starts.status.get_or_insert_default().conditions = None;
    assert!(!facts_of(vec![leader, starts])[0].ready());
}

#[test]
fn a_replica_breaks_with_a_pod_that_goes_and_once_admitted_with_one_that_restarts() {
    let disposition = |pods: Vec<Pod>| facts_of(pods)[0].disposition;
    let [leader, follower] = mk_group(&["ContainersReady", ROUTABLE_GATE]);
    let with = |follower: Pod| disposition(vec![leader.clone(), follower]);
    assert_eq!(with(follower.clone()), NodeDisposition::Keep);
    assert_eq!(with(restarted(follower.clone(), 1)), NodeDisposition::Lost);
    assert_eq!(disposition(vec![leader.clone()]), NodeDisposition::Lost);
    let mut another = follower.clone();
    another.metadata.uid = Some("of the same name".to_owned());
    assert_eq!(with(another), NodeDisposition::Lost);
    let mut deleted = follower;
    deleted.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    assert_eq!(with(deleted.clone()), NodeDisposition::Lost);

    let [comes_up, follower] = mk_group(&["ContainersReady"]);
    assert_eq!(disposition(vec![comes_up.clone()]), NodeDisposition::Keep);
    assert_eq!(
        disposition(vec![comes_up.clone(), restarted(follower, 3)]),
        NodeDisposition::Keep
    );
    assert_eq!(disposition(vec![comes_up, deleted]), NodeDisposition::Lost);
}

#[test]
fn one_pod_that_restarts_is_its_kubelets_matter() {
    let pod = mk_pod("tiny-decode-0-1", "decode", &[ROUTABLE_GATE]);
    assert_eq!(facts(restarted(pod, 7)).disposition, NodeDisposition::Keep);
}

#[test]
fn a_router_that_knows_the_pod_before_of_the_same_name_has_not_acknowledged_this_one() {
    let mut pod = mk_pod("tiny-decode-0-1", "decode", &["ContainersReady"]);
    pod.metadata.uid = Some("u".to_owned());
    pod.status.get_or_insert_default().pod_ip = Some("10.0.0.1".to_owned());
    let facts = facts(pod);
    let is_acknowledged_at = |url: &str| {
        let worker = serde_json::json!({"id": "tiny-decode-0-1", "role": "decode", "url": url,
            "state": "serving", "circuit_open": false, "in_flight": 0, "kv_compat": "k"});
        let routers = [ObservedRouter {
            pod: "tiny-router".to_owned(),
            workers: Some(vec![serde_json::from_value(worker).expect("a worker")]),
        }];
        let ready: Vec<Worker> = facts.worker(&routers).into_iter().collect();
        let is_acknowledged = facts.acknowledged(&routers, &ready).is_some();
        let known = (ready[0].serves, ready[0].kv_compat.is_some());
        assert_eq!(known, (is_acknowledged, is_acknowledged));
        is_acknowledged
    };
    assert!(is_acknowledged_at("http://10.0.0.1:30000"));
    assert!(is_acknowledged_at("http://tiny-decode-0-1.workers:30000"));
    assert!(!is_acknowledged_at("http://10.0.0.2:30000"));
    assert!(!is_acknowledged_at("http://[fd00::1]:30000"));
}
