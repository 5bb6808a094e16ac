//! Facts about pods as workers.

use super::*;
use serde_json::{Value, json};

fn mk_pod(name: &str, uid: &str, over: Value) -> Pod {
    let mut pod = json!({
        "metadata": {"name": name, "uid": uid, "annotations": {}},
        "spec": {"containers": [{"name": "agent", "ports": [
            {"name": "bootstrap", "containerPort": 8998},
            {"name": "http", "containerPort": 30001},
        ]}]},
        "status": {"phase": "Running", "podIP": "10.1.0.7", "conditions": [
            {"type": "ContainersReady", "status": "True"},
            {"type": "Ready", "status": "False"},
        ]},
    });
    for (path, value) in over.as_object().into_iter().flatten() {
        *pod.pointer_mut(path).expect("the path is in the pod") = value.clone();
    }
    serde_json::from_value(pod).expect("a Pod")
}

fn mk_pods() -> Pods {
    Pods::new(Role::Prefill, 30000, "http")
}

fn spec(name: &str, url: &str) -> WorkerSpec {
    WorkerSpec {
        id: name.to_owned(),
        role: Role::Prefill,
        url: url.to_owned(),
        bootstrap_host: None,
        bootstrap_port: None,
        given_kv_compat: None,
    }
}

#[test]
fn a_worker_is_added_once_when_its_containers_are_ready() {
    let mut pods = mk_pods();
    let starting = mk_pod("p", "1", json!({"/status/conditions/0/status": "False"}));
    assert_eq!(pods.take(Event::Apply(starting)), []);
    let ready = || Event::Apply(mk_pod("p", "1", Value::Null));
    assert_eq!(
        pods.take(ready()),
        [Change::Add(spec("p", "http://10.1.0.7:30001"))]
    );
    assert_eq!(pods.take(ready()), []);
}

#[test]
fn a_pod_without_an_address_or_that_has_ended_is_no_worker() {
    let mut pods = mk_pods();
    let unaddressed = mk_pod("p", "1", json!({"/status/podIP": null}));
    assert_eq!(pods.take(Event::Apply(unaddressed)), []);
    let failed = mk_pod("p", "1", json!({"/status/phase": "Failed"}));
    assert_eq!(pods.take(Event::Apply(failed)), []);
}

#[test]
fn of_a_replica_that_spans_nodes_only_the_leader_is_a_worker() {
    let mut pods = mk_pods();
    let of_rank = |rank: &str| {
        let labels = json!({labels::NODE_RANK: rank});
        let mut pod = mk_pod(rank, rank, Value::Null);
        pod.metadata.labels = serde_json::from_value(labels).expect("labels");
        Event::Apply(pod)
    };
    assert_eq!(pods.take(of_rank("1")), []);
    assert_eq!(pods.take(of_rank("0")).len(), 1);
}

#[test]
fn the_port_is_the_one_named_http_or_the_flags() {
    let mut pods = mk_pods();
    let pod = mk_pod(
        "p",
        "1",
        json!({"/spec/containers/0/ports": [], "/status/podIP": "fd00::7"}),
    );
    assert_eq!(
        pods.take(Event::Apply(pod)),
        [Change::Add(spec("p", "http://[fd00::7]:30000"))]
    );
}

#[test]
fn with_a_key_a_worker_is_reached_over_tls_unless_its_pod_says_otherwise() {
    let url = |annotations: Value| {
        let pod = mk_pod("p", "1", json!({"/metadata/annotations": annotations}));
        let mut pods = Pods::new(Role::Prefill, 30000, "https");
        match pods.take(Event::Apply(pod)).as_slice() {
            [Change::Add(spec)] => spec.url.clone(),
            changes => panic!("{changes:?}"),
        }
    };
    assert_eq!(url(json!({})), "https://10.1.0.7:30001");
    assert_eq!(
        url(json!({labels::SCHEME: "http"})),
        "http://10.1.0.7:30001"
    );
}

#[test]
fn the_bootstrap_port_is_read_under_both_names_and_garbage_is_not() {
    let read = |annotations: Value| {
        bootstrap_port(&mk_pod(
            "p",
            "1",
            json!({"/metadata/annotations": annotations}),
        ))
    };
    assert_eq!(
        read(json!({"pdserve.io/bootstrap-port": "9001"})),
        Some(9001)
    );
    assert_eq!(
        read(json!({"sglang.ai/bootstrap-port": "9002"})),
        Some(9002)
    );
    for garbage in ["", "0", "70000", "-1", "http"] {
        assert_eq!(
            read(json!({"pdserve.io/bootstrap-port": garbage})),
            None,
            "{garbage}"
        );
    }
}

#[test]
fn a_pod_that_leaves_is_cordoned_once_then_forgotten() {
    let mut pods = mk_pods();
    pods.take(Event::Apply(mk_pod("p", "1", Value::Null)));
    let marked = json!({"pdserve.io/leaving-since": "2026-01-01T00:00:00Z"});
    let leaving = || Event::Apply(mk_pod("p", "1", json!({"/metadata/annotations": marked})));
    assert_eq!(pods.take(leaving()), [Change::Cordon("p".to_owned())]);
    assert_eq!(pods.take(leaving()), []);
    // Its containers end before it does; it stays listed, so that the operator sees the cordon.
    let ending = mk_pod(
        "p",
        "1",
        json!({"/metadata/annotations": marked, "/status/conditions/0/status": "False"}),
    );
    assert_eq!(pods.take(Event::Apply(ending.clone())), []);
    assert_eq!(
        pods.take(Event::Delete(ending)),
        [Change::Remove("p".to_owned())]
    );
}

#[test]
fn a_deleted_pod_is_cordoned_though_no_operator_marked_it() {
    let mut pods = mk_pods();
    pods.take(Event::Apply(mk_pod("p", "1", Value::Null)));
    let mut deleted = mk_pod("p", "1", Value::Null);
    deleted.metadata.deletion_timestamp =
        serde_json::from_value(json!("2026-01-01T00:00:00Z")).expect("a time");
    assert_eq!(
        pods.take(Event::Apply(deleted)),
        [Change::Cordon("p".to_owned())]
    );
}

#[test]
fn a_leaving_pod_that_was_never_added_is_not_added() {
    let marked = json!({"/metadata/annotations": {"pdserve.io/leaving-since": "x"}});
    assert_eq!(mk_pods().take(Event::Apply(mk_pod("p", "1", marked))), []);
}

#[test]
fn a_pod_of_the_same_name_and_another_uid_is_another_worker() {
    let mut pods = mk_pods();
    pods.take(Event::Apply(mk_pod("p", "1", Value::Null)));
    let next = mk_pod("p", "2", json!({"/status/podIP": "10.1.0.8"}));
    assert_eq!(
        pods.take(Event::Apply(next)),
        [
            Change::Remove("p".to_owned()),
            Change::Add(spec("p", "http://10.1.0.8:30001"))
        ]
    );
}

#[test]
fn what_a_new_list_lacks_is_gone() {
    let mut pods = mk_pods();
    for name in ["a", "b"] {
        pods.take(Event::Apply(mk_pod(name, name, Value::Null)));
    }
    assert_eq!(pods.take(Event::Init), []);
    assert_eq!(
        pods.take(Event::InitApply(mk_pod("b", "b", Value::Null))),
        []
    );
    assert_eq!(pods.take(Event::InitDone), [Change::Remove("a".to_owned())]);
}
