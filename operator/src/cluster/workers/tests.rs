//! Marks under a watch that is late, and what events say.

use super::patches::{as_seen, took_effect};
use super::*;
use crate::cluster::facts::all_facts;
use crate::cluster::fake::mk_deployment;
use crate::cluster::nodes::Nodes;
use kube::core::Status;
use serde_json::json;
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
        let event = worker_replaced(&PodFacts {
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

#[test]
fn a_pod_that_changed_or_went_in_between_is_no_failure_and_not_written() {
    let answer = |reason: &str, code: u16| {
        let status = Status::failure("no", reason).with_code(code);
        took_effect::<Pod>(Err(kube::Error::Api(status.boxed()))).ok()
    };
    assert_eq!(answer("Conflict", 409), Some(false));
    assert_eq!(answer("NotFound", 404), Some(false), "its watch is late");
    assert_eq!(answer("Forbidden", 403), None);
    assert_eq!(took_effect(Ok(())).ok(), Some(true));
}
