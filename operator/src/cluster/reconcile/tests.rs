//! Facts about what follows a reconcile: its status, and the next one.

use super::*;
use crate::cluster::decide::decide_writes;
use crate::cluster::fake::{FakeApi, create, mk_config, mk_deployment, reconciled};
use crate::cluster::snapshot::fixture::{mk_effective, mk_observed, mk_there};
use crate::cluster::status_inputs::status_inputs;
use http::Method;
use pd_crds::scaling::ScalingMode;
use serde_json::json;

const DECODE: &str = "/apis/pdserve.io/v1alpha1/namespaces/ns/pdpools/a-decode";

#[test]
fn a_reconcile_is_repeated_when_what_does_not_go_forward_is_overdue() {
    /// The first timer after a last status, and the status that is said now.
    fn reconciled_at(deployment: &mut PdDeployment, second: i64, is_ready: bool) -> Option<u64> {
        deployment.spec.rollout.progress_deadline_seconds = 600;
        let effective = mk_effective(deployment);
        let mut snapshot = mk_there(&effective, true);
        for facts in &mut snapshot.pods {
            let mut pod = json!(*facts.pod);
            pod["metadata"]["creationTimestamp"] = json!("1970-01-01T00:00:00Z");
            facts.pod = Arc::new(serde_json::from_value(pod).expect("a Pod"));
        }
        snapshot.now = Timestamp::from_second(second).expect("a time");
        let mut observed = mk_observed(&snapshot);
        observed.pods[0].ready = is_ready;
        let writes = decide_writes(&snapshot, &observed, None);
        let mut inputs = status_inputs(&snapshot, &observed, &Outcome::default(), Vec::new());
        // Only workers are looked at.
        inputs.routers = (2, 2);
        let now = snapshot.now;
        let status = status::status(deployment, &writes.desired, &observed, &inputs, now);
        let timer = first_timer(&snapshot, &observed, &status);
        deployment.status = Some(status);
        timer.map(|after| after.as_secs())
    }

    let mut new = mk_deployment("a", "ns");
    assert_eq!(reconciled_at(&mut new, 0, false), Some(601));
    assert_eq!(reconciled_at(&mut new, 400, false), Some(201));
    assert_eq!(reconciled_at(&mut new, 700, false), None, "it is overdue");

    let mut rested = mk_deployment("a", "ns");
    assert_eq!(reconciled_at(&mut rested, 5000, true), None);
    assert_eq!(reconciled_at(&mut rested, 5001, false), Some(601));
    assert_eq!(reconciled_at(&mut rested, 5401, false), Some(201));
}

#[tokio::test]
async fn a_decision_that_could_not_be_written_is_not_remembered_as_taken() {
    let api = FakeApi::default();
    let context = Arc::new(api.context(mk_config()));
    let mut deployment = mk_deployment("a", "ns");
    deployment.spec.autoscaling.mode = ScalingMode::Auto;
    let pools = &mut deployment.spec.pools;
    for pool in [&mut pools.prefill, &mut pools.decode] {
        pool.replicas = None;
        (pool.min_replicas, pool.max_replicas) = (Some(1), Some(4));
    }
    reconciled(&api, &context, &deployment).await;
    deployment.spec.pools.decode.min_replicas = Some(2);
    create(&api, &deployment);
    api.refuse(Method::PATCH, &format!("{DECODE}/scale"), 403);
    let failed = reconcile(Arc::new(deployment.clone()), Arc::clone(&context)).await;
    assert!(failed.is_err_and(|error| error.to_string().starts_with("scale PDPool a-decode")));
    let remembered = context.memories.read("uid-of-a", |memory| {
        let scaler = memory.scaler.as_ref();
        scaler.map(|scaler| scaler.decisions.len())
    });
    assert_eq!(remembered, Some(Some(0)));
}
