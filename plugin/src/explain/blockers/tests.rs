//! Facts about what is said to hold a deployment back.

use super::*;
use crate::fixture::{
    at, condition, crashing, leaving as leaving_pod, loading, pool, router, serving, settled,
    settled_view, unschedulable, view,
};
use serde_json::{Value, json};

fn printed(view: &View) -> Vec<String> {
    blockers(view, &Dispositions::new(), at("12:00:00"))
}

/// The settled deployment with other pods.
fn with_pods(document: Value, workers: Vec<Pod>) -> View {
    let mut pods = workers;
    pods.push(router("tiny-router-5d9f"));
    view(document, pods)
}

fn mk_rollout() -> Value {
    let mut document = settled();
    document["status"]["revision"]["update"] = json!("bbbbbbbbbb");
    document["status"]["pools"] =
        json!({"prefill": pool([1, 1, 0, 1]), "decode": pool([2, 2, 0, 0])});
    document
}

#[test]
fn a_settled_deployment_is_held_back_by_nothing() {
    let view = settled_view();
    assert_eq!(printed(&view), [""; 0]);
    assert_eq!(
        nothing(&view),
        "Nothing holds it back: 1 of 1 prefill and 2 of 2 decode workers serve."
    );
}

#[test]
fn an_absent_operator_comes_before_all_else() {
    let mut document = mk_rollout();
    document["metadata"]["generation"] = json!(4);
    let printed = printed(&with_pods(document, vec![crashing("p", "prefill")]));
    assert!(
        printed[0]
            .starts_with("The operator has not taken up its last change (generation 4, seen 3)")
    );
    let mut document = settled();
    document["status"] = Value::Null;
    let printed = super::tests::printed(&with_pods(document, Vec::new()));
    assert!(printed[0].starts_with("No operator has taken it up yet; see whether one runs"));
    assert_eq!(printed.len(), 1);
}

#[test]
fn pods_with_one_cause_share_a_sentence() {
    let pods = vec![
        crashing("c", "prefill"),
        unschedulable("a", "decode"),
        unschedulable("b", "decode"),
    ];
    insta::assert_snapshot!(printed(&with_pods(settled(), pods)).join("\n"), @r"
    No node has room for a, b: 0/2 nodes are available: 2 Insufficient nvidia.com/gpu. Add nodes, free some, or ask for fewer replicas.
    c cannot start: agent ended: error: no model at /m.gguf; `kubectl describe pod c` says more.
    ");
}

#[test]
fn a_refused_spec_is_reported_with_its_path() {
    let mut document = settled();
    let message = "spec.pools.decode.podTemplate.spec.hostPID: raises privileges";
    document["status"]["conditions"] = json!([condition("Ready", "False", "InvalidSpec", message)]);
    assert_eq!(
        printed(&with_pods(document, Vec::new())),
        [format!(
            "The spec is refused, and what ran before goes on: {message}. Correct it: `kubectl edit pdd tiny`"
        )]
    );
}

#[test]
fn a_rollout_says_how_far_it_is_and_who_can_let_it_go_on() {
    let workers = || {
        vec![
            leaving_pod("old", "decode", "11:59:00"),
            loading("new", "decode"),
        ]
    };
    insta::assert_snapshot!(printed(&with_pods(mk_rollout(), workers())).join("\n"), @r"
    A rollout from aaaaaaaaaa to bbbbbbbbbb is under way: prefill 1 of 1, decode 0 of 2 are replaced.
    new has been starting for 2m: loads its model.
    old has been leaving for 60s: its requests have 300 s to finish.
    ");
    let mut paused = mk_rollout();
    paused["spec"]["rollout"] = json!({"paused": true});
    insta::assert_snapshot!(printed(&with_pods(paused, Vec::new())).join("\n"), @"The rollout from aaaaaaaaaa to bbbbbbbbbb is paused with prefill 1 of 1, decode 0 of 2 replaced; `kubectl pd rollout resume tiny` lets it go on.");
}

#[test]
fn a_rollout_without_room_or_progress_says_so() {
    let mut document = mk_rollout();
    let no_room = condition("Progressing", "True", "NoSurgeCapacity", "no room");
    document["status"]["conditions"] = json!([no_room]);
    let pods = || vec![unschedulable("new", "decode")];
    insta::assert_snapshot!(printed(&with_pods(document.clone(), pods())).join("\n"), @r"
    No node has room for new: 0/2 nodes are available: 2 Insufficient nvidia.com/gpu. The old revision serves until there is; with spec.rollout.maxSurge 0 and maxUnavailable 1 its workers make room.
    A rollout from aaaaaaaaaa to bbbbbbbbbb is under way: prefill 1 of 1, decode 0 of 2 are replaced.
    ");
    let overdue = condition(
        "Progressing",
        "False",
        "ProgressDeadlineExceeded",
        "no room",
    );
    document["status"]["conditions"] = json!([overdue]);
    let printed = printed(&with_pods(document, pods()));
    assert_eq!(
        printed[1],
        "Nothing went forward for 1800 s (spec.rollout.progressDeadlineSeconds). `kubectl pd rollout undo tiny` goes back."
    );
}

#[test]
fn an_overdue_drain_is_reported_as_such() {
    let mut document = settled();
    document["spec"]["drain"] = json!({"timeoutSeconds": 60});
    let pods = vec![
        leaving_pod("a", "decode", "11:59:30"),
        leaving_pod("b", "decode", "11:50:00"),
    ];
    insta::assert_snapshot!(printed(&with_pods(document, pods)).join("\n"), @r"
    a has been leaving for 30s: its requests have 60 s to finish.
    b has been leaving for 10m, longer than the 60 s of spec.drain.timeoutSeconds; `kubectl describe pod b` says more.
    ");
}

#[test]
fn a_cordoned_node_moves_its_workers_unless_cordons_are_ignored() {
    let emptied = Dispositions::from([("node-a".to_owned(), NodeDisposition::Evacuate)]);
    let printed = |document| {
        let view = with_pods(document, vec![serving("a", "decode")]);
        blockers(&view, &emptied, at("12:00:00")).join("\n")
    };
    insta::assert_snapshot!(printed(settled()), @"Node node-a is to be emptied: its workers leave once others serve elsewhere: a.");
    let mut ignoring = settled();
    ignoring["spec"]["drain"] = json!({"onCordon": "Ignore"});
    insta::assert_snapshot!(printed(ignoring), @"Node node-a is to be emptied, but spec.drain.onCordon is Ignore: its workers stay until they are evicted: a.");
}

#[test]
fn a_limited_decision_names_its_limit() {
    let mut document = settled();
    document["spec"]["autoscaling"] = json!({"mode": "Auto"});
    document["status"]["decisions"] = json!([{
        "time": "2026-01-02T11:59:20Z",
        "from": {"prefill": 1, "decode": 2},
        "to": {"prefill": 1, "decode": 3},
        "reason": "KvOccupancy",
        "limitedBy": "Budget",
        "message": "prefill 1 (needs 0.4), decode 2 → 3 (needs 4.2); held at budget.maxGpus",
    }]);
    let view = |document| with_pods(document, vec![serving("a", "decode")]);
    insta::assert_snapshot!(printed(&view(document.clone())).join("\n"), @"The autoscaler went no further 40s ago (Budget): prefill 1 (needs 0.4), decode 2 → 3 (needs 4.2); held at budget.maxGpus.");
    document["spec"]["autoscaling"] = json!({"mode": "Advise"});
    let advice = printed(&view(document.clone())).join("\n");
    assert!(
        advice.starts_with("The autoscaler advised 40s ago: prefill 1"),
        "{advice}"
    );
    document["spec"]["autoscaling"] = json!({"mode": "Off"});
    assert_eq!(printed(&view(document)), [""; 0]);
}

#[test]
fn a_condition_that_nothing_explains_speaks_for_itself() {
    let mut document = settled();
    let zero = condition(
        "Ready",
        "False",
        "ScaledToZero",
        "both pools have no replicas",
    );
    document["status"]["conditions"] = json!([zero]);
    assert_eq!(
        printed(&with_pods(document, Vec::new())),
        ["ScaledToZero: both pools have no replicas."]
    );
}

#[test]
fn a_suspended_deployment_says_so_and_how_to_have_it_back() {
    let mut document = settled();
    document["spec"]["suspend"] = json!(true);
    let printed = printed(&with_pods(document, Vec::new()));
    assert!(
        printed[0].starts_with("It is suspended (spec.suspend)"),
        "{printed:?}"
    );
    assert!(
        printed[0].contains(r#"-p '{"spec": {"suspend": false}}'"#),
        "{printed:?}"
    );
}

#[test]
fn new_weights_are_reported_until_all_serve_them() {
    let explained = |status: &str, reason: &str| {
        let mut document = settled();
        let conditions = document["status"]["conditions"].as_array_mut().unwrap();
        conditions.push(condition("WeightsServed", status, reason, "p reads them"));
        let settled = settled_view();
        printed(&view(document, settled.pods))
    };
    let changing = explained("False", "WeightsChange");
    assert_eq!(changing, ["Its weights are being replaced: p reads them."]);
    let refused = explained("False", "WeightsRefused");
    assert_eq!(refused, ["Its new weights are refused: p reads them."]);
    assert_eq!(explained("True", "WeightsAlike"), [""; 0]);
}

#[test]
fn a_rotation_of_keys_is_reported_until_it_is_done() {
    let explained = |status: &str, reason: &str| {
        let mut document = settled();
        let conditions = document["status"]["conditions"].as_array_mut().unwrap();
        conditions.push(condition(
            "PeerKeysRotated",
            status,
            reason,
            "p cannot be asked",
        ));
        let settled = settled_view();
        printed(&view(document, settled.pods))
    };
    let held = explained("False", "RotationHeld");
    assert_eq!(
        held,
        ["The rotation of its peer keys is held up: p cannot be asked."]
    );
    let rotating = explained("False", "Rotating");
    assert_eq!(
        rotating,
        ["Its peer keys are being rotated: p cannot be asked."]
    );
    assert_eq!(explained("True", "Rotated"), [""; 0]);
}
