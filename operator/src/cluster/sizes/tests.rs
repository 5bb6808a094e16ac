//! Who may size a pool.

use crate::cluster::context::Context;
use crate::cluster::fake::{FakeApi, mk_config, mk_deployment, reconciled};
use crate::cluster::reconcile::renewed;
use kube::runtime::reflector::ObjectRef;
use pd_crds::{PdDeployment, PdDeploymentStatus, PdPool};
use std::sync::Arc;

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
