//! Marks under a watch that is late, and what events say.

use super::*;
use crate::cluster::facts::all_facts;
use crate::cluster::fake::{FakeApi, mk_config, mk_deployment, reconciled};
use crate::cluster::nodes::Nodes;
use kube::core::Status;
use pd_crds::PdDeploymentStatus;
use std::sync::Arc;

#[test]
fn a_mark_is_for_the_pod_as_it_was_seen() {
    let metadata = json!({"name": "p", "uid": "u", "resourceVersion": "7"});
    let pod = serde_json::from_value(json!({"metadata": metadata})).expect("a Pod");
    assert_eq!(as_seen(&pod), json!({"uid": "u", "resourceVersion": "7"}));
}

#[test]
fn only_an_answer_or_an_end_counts_as_drained() {
    let mut leaving = Leaving {
        unanswered: true,
        past_deadline: true,
        ..Leaving::default()
    };
    let outcome = |leaving| outcome_of(NodeDisposition::Keep, leaving);
    assert_eq!(outcome(leaving), DrainOutcome::Unanswered);
    leaving.unanswered = false;
    assert_eq!(outcome(leaving), DrainOutcome::Deadline);
    leaving.drained = true;
    assert_eq!(outcome(leaving), DrainOutcome::Drained);
    assert_eq!(
        outcome_of(NodeDisposition::Lost, leaving),
        DrainOutcome::Lost
    );
}

#[test]
fn only_a_worker_that_is_replaced_for_its_node_has_an_event() {
    let metadata = json!({"name": "a-decode-0-1", "labels": {labels::ROLE: "decode"}});
    let pod = serde_json::from_value(json!({"metadata": metadata})).expect("a Pod");
    let deployment = mk_deployment("a", "ns");
    let facts = all_facts(&deployment, vec![Arc::new(pod)], &Nodes::default()).remove(0);
    let event = |disposition| {
        let event = moved(&PodFacts {
            disposition,
            ..facts.clone()
        })?;
        assert_eq!(event.reason, "WorkerReplaced");
        event.note
    };
    assert_eq!(event(NodeDisposition::Keep), None);
    assert_eq!(
        event(NodeDisposition::Evacuate).as_deref(),
        Some("a-decode-0-1 leaves: its node is being emptied, and its successor serves")
    );
    assert_eq!(
        event(NodeDisposition::Lost).as_deref(),
        Some("a-decode-0-1 leaves: its node, or a pod of its replica, is lost")
    );
}

/// A deployment that has been reconciled, and whose status says that one decode worker is wanted.
async fn mk_settled(api: &FakeApi, context: &Arc<Context>) -> PdDeployment {
    let mut deployment = mk_deployment("a", "ns");
    reconciled(api, context, &deployment).await;
    let mut status = PdDeploymentStatus::default();
    status.pools.decode.desired = 1;
    deployment.status = Some(status);
    deployment
}

#[tokio::test]
async fn a_pool_that_was_scaled_beside_its_spec_has_its_size_again_and_an_event_says_why() {
    let api = FakeApi::default();
    let context = Arc::new(api.context(mk_config()));
    let deployment = mk_settled(&api, &context).await;
    let key = ObjectRef::from_obj(&deployment);
    let pool = context.pools.find(&key, "a-decode").expect("a pool");
    let mut scaled = PdPool::clone(&pool);
    scaled.spec.replicas = 5;
    context.pools.put(&key, &pool.metadata, scaled);
    api.take_writes();
    // The watch on pools is late the second time.
    for _ in 0..2 {
        reconciled(&api, &context, &deployment).await;
    }
    let scale = "PATCH /apis/pdserve.io/v1alpha1/namespaces/ns/pdpools/a-decode/scale";
    let writes = api.take_writes();
    let scales = writes.iter().filter(|write| *write == scale).count();
    assert_eq!(scales, 1, "{writes:?}");
    let undone = api.stored(|object| object["reason"] == "ScaleUndone");
    let [event] = undone.try_into().expect("one event");
    let note = api.find(&event)["note"].clone();
    let begin = "PDPool a-decode was set to 5 and is 1 again";
    assert!(
        note.as_str().is_some_and(|note| note.starts_with(begin)),
        "{note}"
    );
}

#[tokio::test]
async fn a_pool_that_follows_its_spec_has_no_other_scaler() {
    let api = FakeApi::default();
    let context = Arc::new(api.context(mk_config()));
    let mut deployment = mk_settled(&api, &context).await;
    deployment.spec.pools.decode.replicas = Some(2);
    for _ in 0..2 {
        reconciled(&api, &context, &deployment).await;
        deployment = context
            .written
            .renewed(Arc::new(deployment))
            .as_ref()
            .clone();
    }
    let key = ObjectRef::from_obj(&deployment);
    let pool = context.pools.find(&key, "a-decode").expect("a pool");
    assert_eq!(pool.spec.replicas, 2);
    let undone = api.stored(|object| object["reason"] == "ScaleUndone");
    assert_eq!(undone, [""; 0]);
}

#[test]
fn only_a_change_in_between_is_no_failure() {
    let answer = |reason: &str, code: u16| {
        let status = Status::failure("no", reason).with_code(code);
        unless_changed::<Pod>(Err(kube::Error::Api(status.boxed())))
    };
    assert!(answer("Conflict", 409).is_ok());
    assert!(answer("Forbidden", 403).is_err());
    assert!(answer("NotFound", 404).is_err());
    assert!(unless_changed(Ok(())).is_ok());
}
