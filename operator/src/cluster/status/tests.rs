//! Facts about the status, one state at a time.

use super::*;
use crate::controller::build::component::Component::{Decode, Prefill};
use crate::controller::build::slot::Slot;
use crate::controller::plan::Leaving;
use crate::weights::Progress;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use pd_crds::document;
use pd_crds::node_disposition::NodeDisposition;
use pd_crds::stuck::{Cause, Stuck};

mod phases;

fn mk_deployment() -> PdDeployment {
    let text = "apiVersion: pdserve.io/v1alpha1
kind: PDDeployment
metadata: {name: tiny, namespace: ns, generation: 3}
spec: {model: {source: {hostPath: {path: /m.gguf}}}, pools: {}}
";
    document::parse(text).unwrap()
}

fn mk_desired(component: Component, replicas: u32) -> Desired {
    Desired {
        replicas,
        revision: "a".to_owned(),
        ..Desired::nothing(component)
    }
}

fn mk_pod(component: Component, ordinal: u32, routable: bool) -> ObservedPod {
    let slot = Slot {
        ordinal,
        incarnation: 1,
    };
    ObservedPod {
        name: slot.pod_name(component.as_str()),
        component,
        slot,
        revision: "a".to_owned(),
        ready: true,
        admitted: routable,
        disposition: NodeDisposition::Keep,
        degraded: false,
        gathers: false,
        leaving: None,
    }
}

fn mk_inputs(routers: i32) -> StatusInputs {
    StatusInputs {
        routers: (routers, 1),
        endpoint: "http://tiny.ns.svc:8000/v1".to_owned(),
        revision: "r1".to_owned(),
        suspended: false,
        refused: None,
        model: None,
        drifted: None,
        replaces_routers: false,
        trouble: None,
        decisions: vec![],
        lacks_slots: None,
        stuck: None,
        half_placed: None,
        unpaired: None,
        progressed: None,
        rotation: None,
        weights: None,
        guard: None,
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn mk_status(pods: Vec<ObservedPod>, inputs: &StatusInputs) -> PdDeploymentStatus {
    let desired = [mk_desired(Prefill, 1), mk_desired(Decode, 1)];
    let observed = Observed {
        pods,
        ..Observed::default()
    };
    status(&mk_deployment(), &desired, &observed, inputs, at(10))
}

fn condition<'a>(status: &'a PdDeploymentStatus, name: &str) -> &'a Condition {
    let mut conditions = status.conditions.iter();
    conditions
        .find(|condition| condition.type_ == name)
        .unwrap()
}

#[test]
fn it_is_ready_once_a_pair_is_routable_behind_a_ready_router() {
    let pair = || vec![mk_pod(Prefill, 0, true), mk_pod(Decode, 0, true)];
    let serving = mk_status(pair(), &mk_inputs(1));
    assert_eq!(condition(&serving, "Ready").status, "True");
    assert_eq!(condition(&serving, "Progressing").status, "False");
    assert_eq!(serving.pools.prefill.summary, "1/1");
    assert_eq!(serving.observed_generation, Some(3));

    let unrouted = mk_status(pair(), &mk_inputs(0));
    assert_eq!(condition(&unrouted, "Ready").reason, "RouterNotReady");

    let half = mk_status(
        vec![mk_pod(Prefill, 0, true), mk_pod(Decode, 0, false)],
        &mk_inputs(1),
    );
    assert_eq!(condition(&half, "Ready").reason, "DecodeNotRoutable");
    assert_eq!(condition(&half, "Progressing").status, "True");
}

#[test]
fn a_leaving_worker_counts_as_draining_and_no_longer_as_a_replica() {
    let mut leaving = mk_pod(Decode, 1, true);
    leaving.leaving = Some(Leaving::default());
    let status = mk_status(
        vec![mk_pod(Prefill, 0, true), mk_pod(Decode, 0, true), leaving],
        &mk_inputs(1),
    );
    let PoolStatus {
        current,
        routable,
        draining,
        ..
    } = status.pools.decode;
    assert_eq!((current, routable, draining), (1, 1, 1));
    assert_eq!(condition(&status, "Progressing").status, "True");
}

#[test]
fn a_condition_keeps_its_date_while_its_status_stays() {
    let mut deployment = mk_deployment();
    let desired = [mk_desired(Prefill, 1), mk_desired(Decode, 1)];
    let nothing = Observed {
        ..Observed::default()
    };
    let first = status(&deployment, &desired, &nothing, &mk_inputs(0), at(10));
    deployment.status = Some(first.clone());
    let second = status(&deployment, &desired, &nothing, &mk_inputs(0), at(99));
    assert_eq!(first, second, "a second reconcile writes nothing");
}

#[test]
fn a_refused_spec_leaves_the_counts_of_what_runs() {
    let mut deployment = mk_deployment();
    let pair = vec![mk_pod(Prefill, 0, true), mk_pod(Decode, 0, true)];
    deployment.status = Some(mk_status(pair, &mk_inputs(1)));
    let refused = refused(&deployment, "InvalidSpec", "spec.x: no", at(20));
    assert_eq!(condition(&refused, "Ready").message, "spec.x: no");
    assert_eq!(refused.pools.prefill.routable, 1);
}

#[test]
fn the_serving_revision_moves_when_both_pools_are_replaced() {
    let mut deployment = mk_deployment();
    deployment.status = Some(PdDeploymentStatus {
        revision: RevisionStatus {
            current: "r0".to_owned(),
            update: "r0".to_owned(),
        },
        ..PdDeploymentStatus::default()
    });
    let desired = [mk_desired(Prefill, 1), mk_desired(Decode, 1)];
    let mut old = mk_pod(Decode, 0, true);
    old.revision = "before".to_owned();
    let mut observed = Observed {
        pods: vec![mk_pod(Prefill, 0, true), old],
        ..Observed::default()
    };
    let inputs = mk_inputs(1);
    let half = status(&deployment, &desired, &observed, &inputs, at(10));
    assert_eq!(half.revision.current, "r0");
    assert_eq!(half.revision.update, "r1");
    observed.pods[1].revision = "a".to_owned();
    let whole = status(&deployment, &desired, &observed, &inputs, at(11));
    assert_eq!(whole.revision.current, "r1");
}

#[test]
fn a_worker_whose_kv_reaches_no_peer_is_reported() {
    let mut inputs = mk_inputs(1);
    inputs.unpaired = Some("no KV from p to d: timed out".to_owned());
    let pods = || vec![mk_pod(Prefill, 0, true), mk_pod(Decode, 0, false)];
    let status = mk_status(pods(), &inputs);
    assert_eq!(condition(&status, "Progressing").reason, "KvDoesNotArrive");
    assert_eq!(
        condition(&status, "Ready").message,
        "no decode worker is routable; no KV from p to d: timed out"
    );
}

/// What kstatus makes of a status whose generation was observed: its rules, in its order.
fn kstatus(status: &PdDeploymentStatus) -> &'static str {
    for condition in &status.conditions {
        match (condition.type_.as_str(), condition.status.as_str()) {
            ("Reconciling", "True") => return "InProgress",
            ("Stalled", "True") => return "Failed",
            _ => {}
        }
    }
    match condition(status, "Ready").status.as_str() {
        "True" => "Current",
        _ => "InProgress",
    }
}

#[test]
fn a_rollout_is_in_progress_until_its_end_though_the_deployment_serves() {
    let mut pods = vec![mk_pod(Prefill, 0, true), mk_pod(Decode, 0, true)];
    assert_eq!(kstatus(&mk_status(pods.clone(), &mk_inputs(1))), "Current");
    pods[1].revision = "before".to_owned();
    let rolls = mk_status(pods.clone(), &mk_inputs(1));
    assert_eq!(condition(&rolls, "Ready").status, "True");
    assert_eq!(kstatus(&rolls), "InProgress");
    let mut overdue = mk_inputs(1);
    overdue.progressed = Some(at(-100_000));
    assert_eq!(kstatus(&mk_status(pods.clone(), &overdue)), "Failed");

    pods[1].revision = "a".to_owned();
    let mut routers_move = mk_inputs(1);
    routers_move.replaces_routers = true;
    assert_eq!(
        kstatus(&mk_status(pods.clone(), &routers_move)),
        "InProgress"
    );
    let mut starts = mk_inputs(1);
    starts.routers = (1, 2);
    assert_eq!(kstatus(&mk_status(pods, &starts)), "InProgress");
}

#[test]
fn what_moves_after_a_long_rest_is_stalled_only_once_it_has_moved_for_long() {
    let mut deployment = mk_deployment();
    let deadline = i64::from(deployment.spec.rollout.progress_deadline_seconds);
    let mut reasons = |ready: bool, routers: i32, second: i64| {
        let mut inputs = mk_inputs(routers);
        inputs.progressed = Some(at(0));
        let desired = [mk_desired(Prefill, 1), mk_desired(Decode, 1)];
        let observed = Observed {
            pods: vec![mk_pod(Prefill, 0, true), mk_pod(Decode, 0, ready)],
            ..Observed::default()
        };
        let now = status(&deployment, &desired, &observed, &inputs, at(second));
        deployment.status = Some(now.clone());
        ["Progressing", "Stalled"].map(|name| condition(&now, name).reason.clone())
    };
    let late = 10_000;
    let stalled = ["ProgressDeadlineExceeded"; 2];
    assert_eq!(reasons(true, 1, late), ["AsWanted", "NotStalled"]);
    assert_eq!(reasons(false, 1, late + 1), ["Moving", "NotStalled"]);
    let end = late + 1 + deadline;
    assert_eq!(reasons(false, 1, end), ["Moving", "NotStalled"]);
    assert_eq!(reasons(false, 1, end + 1), stalled);
    assert_eq!(reasons(false, 1, end + 2), stalled, "it stays so");
    assert_eq!(reasons(true, 1, end + 3), ["AsWanted", "NotStalled"]);
    assert_eq!(reasons(true, 0, end + 4), ["AsWanted", "NotStalled"]);
    let routers_stalled = ["AsWanted", "ProgressDeadlineExceeded"];
    assert_eq!(reasons(true, 0, end + 5 + deadline), routers_stalled);
    assert_eq!(reasons(true, 0, end + 6 + deadline), routers_stalled);
}

#[test]
fn a_refused_edit_is_reported_beside_what_serves() {
    let mut inputs = mk_inputs(1);
    inputs.refused = Some("spec.x: no".to_owned());
    let pair = vec![mk_pod(Prefill, 0, true), mk_pod(Decode, 0, true)];
    let status = mk_status(pair, &inputs);
    assert_eq!(condition(&status, "Ready").status, "True");
    assert_eq!(condition(&status, "PrefillReady").status, "True");
    let valid = condition(&status, "SpecValid");
    assert_eq!(
        (valid.status.as_str(), valid.reason.as_str()),
        ("False", "InvalidSpec")
    );
    assert_eq!(valid.message, "the last valid spec is kept up; spec.x: no");
    assert_eq!(kstatus(&status), "Failed");
}

#[test]
fn workers_of_another_image_are_reported_with_the_remedy() {
    let pair = || vec![mk_pod(Prefill, 0, true), mk_pod(Decode, 0, true)];
    let alike = mk_status(pair(), &mk_inputs(1));
    assert_eq!(condition(&alike, "ImagesAlike").status, "True");
    let mut inputs = mk_inputs(1);
    inputs.drifted = Some("1 workers run another image".to_owned());
    let status = mk_status(pair(), &inputs);
    assert_eq!(condition(&status, "ImagesAlike").reason, "ImageDrift");
    assert!(
        condition(&status, "ImagesAlike")
            .message
            .ends_with("`kubectl pd restart tiny` replaces them step by step")
    );
    assert_eq!(kstatus(&status), "Current", "it serves as it is wanted");
}

#[test]
fn a_rotation_of_keys_has_a_condition_where_it_was_asked_for() {
    let pair = || vec![mk_pod(Prefill, 0, true), mk_pod(Decode, 0, true)];
    let settled = mk_status(pair(), &mk_inputs(1));
    let mut conditions = settled.conditions.iter();
    assert!(!conditions.any(|is| is.type_ == PEER_KEYS_ROTATED));
    let message = || "waits".to_owned();
    for (rotation, holds, reason) in [
        (KeyRotation::UnderWay(message()), "False", "Rotating"),
        (KeyRotation::Held(message()), "False", "RotationHeld"),
        (KeyRotation::Done(message()), "True", "Rotated"),
    ] {
        let mut inputs = mk_inputs(1);
        inputs.rotation = Some(rotation);
        let status = mk_status(pair(), &inputs);
        let rotated = condition(&status, PEER_KEYS_ROTATED);
        assert_eq!((&*rotated.status, &*rotated.reason), (holds, reason));
        assert_eq!(kstatus(&status), "Current", "it serves as it is wanted");
    }
}

#[test]
fn weights_have_a_condition_where_the_spec_names_some() {
    let pair = || vec![mk_pod(Prefill, 0, true), mk_pod(Decode, 0, true)];
    let settled = mk_status(pair(), &mk_inputs(1));
    let mut conditions = settled.conditions.iter();
    assert!(!conditions.any(|is| is.type_ == WEIGHTS_SERVED));
    let said = || "said".to_owned();
    for (progress, holds, reason, seen) in [
        (
            Progress::UnderWay(said()),
            "False",
            "WeightsChange",
            "InProgress",
        ),
        (
            Progress::Refused(said()),
            "False",
            "WeightsRefused",
            "Failed",
        ),
        (Progress::Served(said()), "True", "WeightsAlike", "Current"),
    ] {
        let mut inputs = mk_inputs(1);
        inputs.weights = Some(progress);
        let status = mk_status(pair(), &inputs);
        let weights = condition(&status, WEIGHTS_SERVED);
        assert_eq!((&*weights.status, &*weights.reason), (holds, reason));
        assert_eq!(kstatus(&status), seen);
        assert_eq!(condition(&status, "Ready").status, "True");
    }
}

#[test]
fn requests_that_wait_for_slots_are_a_condition_of_models_that_have_some() {
    let pair = || vec![mk_pod(Prefill, 0, true), mk_pod(Decode, 0, true)];
    let with = |lacks_slots| {
        let inputs = StatusInputs {
            lacks_slots,
            ..mk_inputs(1)
        };
        mk_status(pair(), &inputs)
    };
    let of = |status: &PdDeploymentStatus| {
        let found = super::condition(status, STATE_SLOTS_FREE);
        found.map(|it| (it.status.clone(), it.reason.clone()))
    };
    let said = |status: &str, reason: &str| Some((status.to_owned(), reason.to_owned()));
    assert_eq!(of(&with(None)), None);
    assert_eq!(of(&with(Some(false))), said("True", "SlotsFree"));
    let lacking = with(Some(true));
    assert_eq!(of(&lacking), said("False", OUT_OF_STATE_SLOTS));
    let message = &condition(&lacking, STATE_SLOTS_FREE).message;
    assert!(message.contains("max-mamba-cache-size"), "{message}");
    assert_eq!(condition(&lacking, "Ready").status, "True");
}
