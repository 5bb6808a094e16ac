//! Facts about the end of a deployment, with an apiserver in memory.

use super::*;
use crate::cluster::context::Context;
use crate::cluster::fake::{FakeApi, create, mk_config, mk_deployment, reconciled};
use crate::cluster::reconcile::reconcile;
use http::Method;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;
use std::sync::Arc;

const DEPLOYMENT: &str = "/apis/pdserve.io/v1alpha1/namespaces/ns/pddeployments/a";
const WORKERS: [&str; 2] = [
    "/api/v1/namespaces/ns/pods/a-decode-0-1",
    "/api/v1/namespaces/ns/pods/a-prefill-0-1",
];

/// A deployment whose workers run, deleted before another operator process, which remembers nothing, takes over.
async fn mk_deleted(api: &FakeApi) -> (Arc<Context>, PdDeployment) {
    let mut deployment = mk_deployment("a", "ns");
    let first = Arc::new(api.context(mk_config()));
    reconciled(api, &first, &deployment).await;
    for path in WORKERS {
        let mut pod = api.find(path);
        let ready = json!({"type": "ContainersReady", "status": "True"});
        pod["status"] = json!({"phase": "Running", "podIP": "127.0.0.1", "conditions": [ready]});
        api.put(path, pod);
    }
    deployment.metadata.deletion_timestamp = Some(Time(Timestamp::now()));
    deployment.metadata.finalizers = Some(vec![labels::FINALIZER.to_owned()]);
    create(api, &deployment);
    let context = Arc::new(api.context(mk_config()));
    api.report_pods(&context, &deployment);
    (context, deployment)
}

fn leaves(pod: &Value) -> bool {
    !pod["metadata"]["annotations"][labels::LEAVING_SINCE].is_null()
}

#[tokio::test]
async fn a_deployment_goes_although_its_secret_is_another_owners() {
    let api = FakeApi::default();
    let (context, deployment) = mk_deleted(&api).await;
    let theirs = json!({"metadata": {"name": "a-admin", "uid": "theirs"}});
    api.put("/api/v1/namespaces/ns/secrets/a-admin", theirs);
    let deployment = Arc::new(deployment);
    for _ in 0..3 {
        let reconcile = reconcile(Arc::clone(&deployment), Arc::clone(&context));
        reconcile.await.expect("a step");
        api.report_pods(&context, &deployment);
    }
    assert_eq!(api.stored(|object| object["kind"] == "Pod"), [""; 0]);
    let finalizers = &api.find(DEPLOYMENT)["metadata"]["finalizers"];
    assert_eq!(finalizers, &json!([]));
}

#[tokio::test]
async fn a_worker_that_cannot_be_marked_keeps_no_other_from_leaving() {
    let api = FakeApi::default();
    let (context, deployment) = mk_deleted(&api).await;
    let [decode, prefill] = WORKERS;
    api.refuse(Method::PATCH, prefill, 403);
    let failed = reconcile(Arc::new(deployment), context).await;
    let Err(ReconcileError::Apply { requeue_after, .. }) = failed else {
        panic!("{failed:?}");
    };
    assert_eq!(requeue_after, Some(POLL_INTERVAL), "drains go on beside it");
    assert!(leaves(&api.find(decode)) && !leaves(&api.find(prefill)));
}

#[tokio::test]
async fn a_refused_spec_is_reported_although_a_worker_cannot_be_ended() {
    let api = FakeApi::default();
    let (context, mut deployment) = mk_deleted(&api).await;
    deployment.metadata.deletion_timestamp = None;
    let source = &mut deployment.spec.model.source;
    source.host_path.as_mut().expect("a path").path = "m.gguf".to_owned();
    for path in WORKERS {
        let mut pod = api.find(path);
        pod["metadata"]["annotations"][labels::LEAVING_SINCE] = json!("1970-01-01T00:00:00Z");
        api.put(path, pod);
        api.refuse(Method::DELETE, path, 403);
    }
    api.report_pods(&context, &deployment);
    let failed = reconcile(Arc::new(deployment), context).await;
    assert!(failed.is_err_and(|error| error.to_string().starts_with("delete Pod")));
    let status = &api.find(DEPLOYMENT)["status"]["conditions"];
    assert!(status.to_string().contains("InvalidSpec"), "{status}");
}

#[tokio::test]
async fn a_deployment_that_changed_since_it_was_seen_is_reconciled_again_and_nothing_failed() {
    let api = FakeApi::default();
    let (context, mut deployment) = mk_deleted(&api).await;
    for path in WORKERS {
        api.remove(path);
    }
    api.report_pods(&context, &deployment);
    api.refuse(Method::PATCH, DEPLOYMENT, 409);
    for is_deleted in [true, false] {
        if !is_deleted {
            deployment.metadata.deletion_timestamp = None;
            deployment.metadata.finalizers = None;
        }
        let late = reconcile(Arc::new(deployment.clone()), Arc::clone(&context)).await;
        assert_eq!(late.expect("a late watch"), Action::requeue(POLL_INTERVAL));
        assert_eq!(api.stored(|object| object["kind"] == "Pod"), [""; 0]);
    }
}

#[tokio::test]
async fn a_deployment_that_has_gone_meanwhile_needs_no_finalizer_taken_off() {
    let api = FakeApi::default();
    let (context, deployment) = mk_deleted(&api).await;
    for path in WORKERS {
        api.remove(path);
    }
    api.report_pods(&context, &deployment);
    api.refuse(Method::PATCH, DEPLOYMENT, 404);
    let gone = reconcile(Arc::new(deployment), context).await;
    assert!(gone.is_ok(), "{gone:?}");
}
