//! Facts about what is news.

use super::*;
use crate::cluster::fake::{self, FakeApi, create, mk_config};
use http::Method;
use serde_json::json;
use std::sync::Arc;

fn mk_deployment(version: &str, kv_compat: &str) -> Arc<PdDeployment> {
    let object = json!({
        "apiVersion": "pdserve.io/v1alpha1", "kind": "PDDeployment",
        "metadata": {"name": "tiny", "uid": "u", "resourceVersion": version},
        "spec": {"model": {"source": {"hostPath": {"path": "/m.gguf"}}}, "pools": {}},
    });
    let mut deployment: PdDeployment = serde_json::from_value(object).expect("a PDDeployment");
    deployment.status = Some(mk_status(kv_compat));
    Arc::new(deployment)
}

fn mk_status(kv_compat: &str) -> PdDeploymentStatus {
    PdDeploymentStatus {
        kv_compat: Some(kv_compat.to_owned()),
        ..PdDeploymentStatus::default()
    }
}

#[test]
fn an_autoscaler_counts_replicas_that_stay_and_not_their_pods() {
    assert_eq!(
        replicas_selector(&mk_deployment("1", ""), Component::Decode),
        "pdserve.io/deployment=tiny,pdserve.io/node-rank=0,pdserve.io/role=decode,!pdserve.io/leaving"
    );
}

#[test]
fn a_rollout_and_a_refusal_have_events_at_their_ends_and_not_in_between() {
    let mk = |current: &str, update: &str, valid: &str| {
        let condition = json!({"type": "SpecValid", "status": valid, "reason": "r",
            "message": "spec.x: no", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let status = json!({"conditions": [condition],
            "revision": {"current": current, "update": update}});
        serde_json::from_value::<PdDeploymentStatus>(status).expect("a status")
    };
    let events = |before: &PdDeploymentStatus, after: &PdDeploymentStatus| {
        let events = transitions(Some(before), after).into_iter();
        events.map(|event| event.reason).collect::<Vec<_>>()
    };
    let nothing = Vec::<String>::new();
    let settled = mk("a", "a", "True");
    let rolls = mk("a", "b", "True");
    let rolled = mk("b", "b", "True");
    let refused = mk("b", "b", "False");
    assert_eq!(events(&PdDeploymentStatus::default(), &settled), nothing);
    assert_eq!(events(&settled, &rolls), ["RolloutStarted"]);
    assert_eq!(events(&rolls, &rolls), nothing);
    assert_eq!(events(&rolls, &rolled), ["RolloutFinished"]);
    assert_eq!(events(&rolled, &refused), ["SpecRefused"]);
    assert_eq!(events(&refused, &refused), nothing);
}

#[tokio::test]
async fn a_pool_that_is_gone_keeps_no_status_from_being_written() {
    let api = FakeApi::default();
    let deployment = fake::mk_deployment("a", "ns");
    create(&api, &deployment);
    let pool = "/apis/pdserve.io/v1alpha1/namespaces/ns/pdpools/a-decode/status";
    api.refuse(Method::PATCH, pool, 404);
    let context = api.context(mk_config());
    let writer = Writer::of(&deployment, &context).expect("a namespace");
    let report = Report {
        status: mk_status("k"),
        pools: vec![("a-decode".to_owned(), PdPoolStatus::default())],
    };
    let failed = write_report(&writer, report).await;
    assert!(failed.is_err(), "the pool's status is not written");
    let path = "/apis/pdserve.io/v1alpha1/namespaces/ns/pddeployments/a";
    assert_eq!(api.find(path)["status"]["kvCompat"], "k");
}

#[test]
fn a_rotation_of_keys_that_is_held_up_is_news_once() {
    let mk = |reason: &str| {
        let condition = json!({"type": "PeerKeysRotated", "status": "False", "reason": reason,
            "message": "p cannot be asked", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let status = json!({"conditions": [condition]});
        serde_json::from_value::<PdDeploymentStatus>(status).expect("a status")
    };
    let events = |before: &str, after: &str| transitions(Some(&mk(before)), &mk(after));
    let news = events("Rotating", "RotationHeld");
    assert_eq!(news.len(), 1);
    assert_eq!(
        (news[0].reason.as_str(), news[0].type_),
        ("RotationHeld", EventType::Warning)
    );
    assert!(events("RotationHeld", "RotationHeld").is_empty());
    assert!(events("RotationHeld", "Rotating").is_empty());
}

#[test]
fn weights_that_are_refused_or_served_are_news_once() {
    let mk = |status: &str, reason: &str| {
        let condition = json!({"type": "WeightsServed", "status": status, "reason": reason,
            "message": "said", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let status = json!({"conditions": [condition]});
        serde_json::from_value::<PdDeploymentStatus>(status).expect("a status")
    };
    let change = mk("False", "WeightsChange");
    let (refused, alike) = (mk("False", "WeightsRefused"), mk("True", "WeightsAlike"));
    for (after, reason, kind) in [
        (&refused, "WeightsRefused", EventType::Warning),
        (&alike, "WeightsAlike", EventType::Normal),
    ] {
        let news = transitions(Some(&change), after);
        assert_eq!(news.len(), 1);
        assert_eq!((news[0].reason.as_str(), news[0].type_), (reason, kind));
        assert!(transitions(Some(after), after).is_empty());
        assert!(transitions(Some(after), &change).is_empty());
    }
}

#[test]
fn requests_that_begin_to_wait_for_slots_are_news_once() {
    let mk = |status: &str, reason: &str| {
        let condition = json!({"type": "StateSlotsFree", "status": status, "reason": reason,
            "message": "requests wait", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let status = json!({"conditions": [condition]});
        serde_json::from_value::<PdDeploymentStatus>(status).expect("a status")
    };
    let (free, out) = (mk("True", "SlotsFree"), mk("False", "OutOfStateSlots"));
    let news = transitions(Some(&free), &out);
    assert_eq!(news.len(), 1);
    assert_eq!(
        (news[0].reason.as_str(), news[0].type_),
        ("OutOfStateSlots", EventType::Warning)
    );
    assert!(transitions(Some(&out), &out).is_empty());
    assert!(transitions(Some(&out), &free).is_empty());
}
