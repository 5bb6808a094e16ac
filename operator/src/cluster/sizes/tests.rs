//! Who may size a pool.

use super::{PoolWrite, decide_sizes};
use crate::cluster::context::Context;
use crate::cluster::fake::{FakeApi, create, mk_config, mk_deployment, reconciled};
use crate::cluster::reconcile::{reconcile, renewed};
use crate::cluster::snapshot::fixture::{mk_effective, mk_with, mk_workers};
use http::Method;
use kube::runtime::reflector::ObjectRef;
use pd_crds::scaling::ScalingMode;
use pd_crds::{PdDeployment, PdDeploymentStatus, PdPool};
use std::sync::Arc;

const DECODE: &str = "/apis/pdserve.io/v1alpha1/namespaces/ns/pdpools/a-decode";

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
    let pool = context.index.pools.find(&key, "a-decode").expect("a pool");
    let mut scaled = PdPool::clone(&pool);
    scaled.spec.replicas = 5;
    context.index.pools.put(&key, &pool.metadata, scaled);
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
        deployment = renewed(Arc::new(deployment), &context).as_ref().clone();
    }
    let key = ObjectRef::from_obj(&deployment);
    let pool = context.index.pools.find(&key, "a-decode").expect("a pool");
    assert_eq!(pool.spec.replicas, 2);
    let undone = api.stored(|object| object["reason"] == "ScaleUndone");
    assert_eq!(undone, [""; 0]);
}

#[tokio::test]
async fn a_size_that_could_not_be_written_is_reported_as_wanted_and_is_no_other_clients() {
    let api = FakeApi::default();
    let context = Arc::new(api.context(mk_config()));
    let mut deployment = mk_settled(&api, &context).await;
    deployment.spec.pools.decode.replicas = Some(2);
    create(&api, &deployment);
    api.refuse(Method::PATCH, &format!("{DECODE}/scale"), 403);
    let failed = reconcile(Arc::new(deployment.clone()), Arc::clone(&context)).await;
    assert!(failed.is_err());
    deployment = renewed(Arc::new(deployment), &context).as_ref().clone();
    let status = deployment.status.clone().expect("a status");
    assert_eq!(status.pools.decode.desired, 2);
    let mut conditions = status.conditions.iter();
    let decode = conditions.find(|is| is.type_ == "DecodeReady");
    assert_eq!(decode.map(|is| is.status.as_str()), Some("False"));

    api.permit_all();
    reconciled(&api, &context, &deployment).await;
    assert_eq!(api.find(DECODE)["spec"]["replicas"], 2);
    let undone = api.stored(|object| object["reason"] == "ScaleUndone");
    assert_eq!(undone, [""; 0]);
}

/// A deployment of three workers each, whose decode pool's object is not known; gives the size that is decided.
fn created(mode: ScalingMode, status: Option<i32>) -> i32 {
    let mut deployment = mk_deployment("a", "ns");
    deployment.spec.autoscaling.mode = mode;
    let pools = &mut deployment.spec.pools;
    for pool in [&mut pools.prefill, &mut pools.decode] {
        let is_auto = mode == ScalingMode::Auto;
        pool.replicas = Some(1).filter(|_| !is_auto);
        pool.min_replicas = Some(1).filter(|_| is_auto);
        pool.max_replicas = Some(4).filter(|_| is_auto);
    }
    deployment.status = status.map(|desired| {
        let mut status = PdDeploymentStatus::default();
        status.pools.decode.desired = desired;
        status
    });
    let effective = mk_effective(&deployment);
    let workers = (0..3).flat_map(|first| mk_workers(&effective, first, true));
    let mut snapshot = mk_with(&effective, workers.collect());
    snapshot.pools.decode = None;
    let (desired, writes) = decide_sizes(&snapshot);
    let [PoolWrite::Create(pool)] = &writes[..] else {
        panic!("one pool is made");
    };
    let replicas = i32::try_from(desired[1].replicas);
    assert_eq!(Ok(pool.spec.replicas), replicas);
    pool.spec.replicas
}

#[test]
fn a_pool_whose_object_was_deleted_keeps_its_workers_where_an_autoscaler_sized_it() {
    assert_eq!(created(ScalingMode::External, None), 3);
    assert_eq!(created(ScalingMode::Auto, None), 3);
    assert_eq!(created(ScalingMode::Off, None), 1, "the spec's size");
}

#[test]
fn a_pool_whose_object_was_deleted_in_a_rollout_has_its_size_again_and_not_the_surge() {
    assert_eq!(created(ScalingMode::External, Some(2)), 2);
    assert_eq!(created(ScalingMode::Off, Some(2)), 1, "the spec's size");
    assert_eq!(created(ScalingMode::External, Some(0)), 3, "suspended");
}

#[tokio::test]
async fn a_pool_that_exists_and_is_not_watched_has_no_known_size_and_gets_no_worker() {
    let api = FakeApi::default();
    let context = Arc::new(api.context(mk_config()));
    let mut deployment = mk_deployment("a", "ns");
    deployment.spec.autoscaling.mode = ScalingMode::External;
    reconciled(&api, &context, &deployment).await;
    let key = ObjectRef::from_obj(&deployment);
    context.index.pools.take(&key, "a-decode");
    context.index.pods.take(&key, "a-decode-0-1");
    api.remove("/api/v1/namespaces/ns/pods/a-decode-0-1");
    let failed = reconcile(Arc::new(deployment), context).await;
    let error = failed.expect_err("its size is not known").to_string();
    assert!(
        error.starts_with("PDPool a-decode exists and is not watched"),
        "{error}"
    );
    let decode = api.find("/api/v1/namespaces/ns/pods/a-decode-0-1");
    assert!(decode.is_null(), "{decode}");
}
