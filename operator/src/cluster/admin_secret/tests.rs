//! Facts about tokens that are lost and found.

use super::*;
use crate::cluster::context::Context;
use crate::cluster::error::ReconcileError;
use crate::cluster::fake::{FakeApi, create, mk_config, mk_deployment, reconciled};
use crate::cluster::observe::POLL_INTERVAL;
use crate::cluster::reconcile::reconcile;
use http::Method;
use pd_crds::document;
use pd_protocol::labels::LEAVING_SINCE;
use serde_json::json;
use std::sync::Arc;

fn mk_secret(token: &AdminToken, created: &str) -> Secret {
    let text = "apiVersion: pdserve.io/v1alpha1
kind: PDDeployment
metadata: {name: tiny, namespace: ns}
spec: {model: {source: {hostPath: {path: /m.gguf}}}, pools: {}}
";
    let deployment = document::parse(text).unwrap();
    let mut secret = build_secret(&deployment, "tiny-admin".to_owned(), token);
    let created = created.parse().expect("a time");
    secret.metadata.creation_timestamp = Some(
        k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(created),
    );
    secret
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

#[test]
fn a_lost_secret_comes_back_with_the_token_that_is_known() {
    let first = AdminToken::renewed(None, false, at(5));
    assert_eq!(first.since, None, "nothing ran before it");
    let again = AdminToken::renewed(Some(&first), true, at(9));
    assert_eq!((&again.text, again.since), (&first.text, None));
}

#[test]
fn a_new_token_dates_the_pods_that_hold_it_and_the_next_operator_reads_when() {
    let made = AdminToken::renewed(None, true, at(9));
    assert_eq!(made.since, Some(at(9)));
    let read = AdminToken::read(&mk_secret(&made, "1970-01-01T00:00:09Z"), None);
    assert_eq!((&read.text, read.since), (&made.text, made.since));
}

#[test]
fn another_token_in_the_secret_holds_since_that_was_made() {
    let known = AdminToken::renewed(None, false, at(5));
    let other = AdminToken::renewed(None, false, at(5));
    let stored = mk_secret(&other, "1970-01-01T00:01:00Z");
    let read = AdminToken::read(&stored, Some(&known));
    assert_eq!((&read.text, read.since), (&other.text, Some(at(60))));
    let unchanged = AdminToken::read(&stored, Some(&read));
    assert_eq!(unchanged.since, Some(at(60)));
}

const SECRET: &str = "/api/v1/namespaces/ns/secrets/a-admin";
const STATUS: &str = "/apis/pdserve.io/v1alpha1/namespaces/ns/pddeployments/a/status";
const DEPLOYMENT: &str = "/apis/pdserve.io/v1alpha1/namespaces/ns/pddeployments/a";

/// Says that a pod waits for the Secret, so that it is read again.
fn lose_secret(api: &FakeApi, context: &Context, deployment: &PdDeployment) {
    let path = "/api/v1/namespaces/ns/pods/a-prefill-0-1";
    let mut pod = api.find(path);
    let reason = "CreateContainerConfigError";
    pod["status"] = json!({"containerStatuses": [{"name": "agent", "image": "", "imageID": "",
        "ready": false, "restartCount": 0, "state": {"waiting": {"reason": reason}}}]});
    api.put(path, pod);
    api.report_pods(context, deployment);
}

#[tokio::test]
async fn a_known_token_serves_on_while_its_secret_cannot_be_read() {
    let api = FakeApi::default();
    let context = Arc::new(api.context(mk_config()));
    let mut deployment = mk_deployment("a", "ns");
    reconciled(&api, &context, &deployment).await;
    lose_secret(&api, &context, &deployment);
    api.refuse(Method::GET, SECRET, 500);
    deployment.spec.pools.decode.replicas = Some(2);
    for _ in 0..2 {
        reconciled(&api, &context, &deployment).await;
    }
    let second = api.find("/api/v1/namespaces/ns/pods/a-decode-1-1");
    assert!(!second.is_null(), "the rest goes on");
}

#[tokio::test]
async fn a_token_that_cannot_be_made_is_what_a_reconcile_reports() {
    let api = FakeApi::default();
    let context = Arc::new(api.context(mk_config()));
    let deployment = mk_deployment("a", "ns");
    create(&api, &deployment);
    api.refuse(Method::POST, "/api/v1/namespaces/ns/secrets", 403);
    api.refuse(Method::PATCH, STATUS, 500);
    let error = reconcile(Arc::new(deployment), context).await.unwrap_err();
    let error = error.to_string();
    assert!(error.starts_with("create Secret a-admin"), "{error}");
}

#[tokio::test]
async fn a_secret_that_is_another_owners_or_cannot_be_made_again_is_reported_and_the_rest_goes_on()
{
    for is_theirs in [true, false] {
        let api = FakeApi::default();
        let context = Arc::new(api.context(mk_config()));
        let mut deployment = mk_deployment("a", "ns");
        reconciled(&api, &context, &deployment).await;
        lose_secret(&api, &context, &deployment);
        api.remove(SECRET);
        if is_theirs {
            let theirs = json!({"metadata": {"name": "a-admin", "uid": "theirs"}});
            api.put(SECRET, theirs);
        }
        api.refuse(Method::POST, "/api/v1/namespaces/ns/secrets", 403);
        deployment.spec.pools.decode.replicas = Some(2);
        create(&api, &deployment);
        let failed = reconcile(Arc::new(deployment), context).await;
        let error = failed
            .expect_err("no pod can be given the token")
            .to_string();
        assert!(error.contains("Secret a-admin"), "{error}");
        let second = api.find("/api/v1/namespaces/ns/pods/a-decode-1-1");
        assert!(!second.is_null(), "the rest goes on");
        let status = api.find(DEPLOYMENT)["status"]["conditions"].to_string();
        assert!(
            status.contains("CannotApply") && status.contains("Secret a-admin"),
            "{status}"
        );
    }
}

#[tokio::test]
async fn a_worker_on_its_way_out_goes_although_there_is_no_token() {
    let api = FakeApi::default();
    let deployment = mk_deployment("a", "ns");
    reconciled(&api, &Arc::new(api.context(mk_config())), &deployment).await;
    let path = "/api/v1/namespaces/ns/pods/a-prefill-0-1";
    let mut pod = api.find(path);
    pod["metadata"]["annotations"][LEAVING_SINCE] = json!("1970-01-01T00:00:00Z");
    api.put(path, pod);
    let theirs = json!({"metadata": {"name": "a-admin", "uid": "theirs"}});
    api.put(SECRET, theirs);
    // It takes over, and remembers nothing.
    let context = Arc::new(api.context(mk_config()));
    api.report_pods(&context, &deployment);
    let failed = reconcile(Arc::new(deployment), context).await;
    let Err(ReconcileError::Apply { requeue_after, .. }) = failed else {
        panic!("{failed:?}");
    };
    assert_eq!(requeue_after, Some(POLL_INTERVAL), "drains go on");
    assert!(api.find(path).is_null(), "it is past its deadline");
    let status = api.find(DEPLOYMENT)["status"]["conditions"].to_string();
    assert!(status.contains("CannotApply"), "{status}");
}
