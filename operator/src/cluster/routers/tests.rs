//! Facts about routers that outlive an operator, with an apiserver in memory.

use super::*;
use crate::cluster::context::Context;
use crate::cluster::fake::{FakeApi, mk_config, mk_deployment, reconciled};
use crate::cluster::router_template::DIGITS;
use crate::controller::build::config::BuildConfig;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use kube::api::ObjectMeta;
use kube::runtime::reflector::ObjectRef;
use pd_crds::PdDeployment;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

const PATH: &str = "/apis/apps/v1/namespaces/ns/deployments/a-router";

/// An operator with an image of its own, and what its watches report first.
fn mk_operator(api: &FakeApi, image: &str) -> Arc<Context> {
    let context = api.context(BuildConfig {
        image: image.to_owned(),
        ..mk_config()
    });
    let stored = api.find(PATH);
    if !stored.is_null() {
        observe(&context, &stored);
    }
    api.report_pools(&context, &mk_deployment("a", "ns"));
    Arc::new(context)
}

fn observe(context: &Context, stored: &Value) {
    let metadata: ObjectMeta = serde_json::from_value(stored["metadata"].clone()).unwrap();
    let key = ObjectRef::from_obj(&mk_deployment("a", "ns"));
    context.index.deployments.put_metadata(&key, &metadata);
}

fn image(api: &FakeApi) -> Value {
    api.find(PATH)["spec"]["template"]["spec"]["containers"][0]["image"].clone()
}

/// Routers as the operator before made them.
async fn made_before(api: &FakeApi, deployment: &PdDeployment) {
    let before = mk_operator(api, "pdserve:1");
    reconciled(api, &before, deployment).await;
    assert_eq!(image(api), "pdserve:1");
}

#[tokio::test]
async fn a_newer_operator_keeps_the_routers_of_the_same_spec() {
    let api = FakeApi::default();
    let deployment = mk_deployment("a", "ns");
    made_before(&api, &deployment).await;
    let newer = mk_operator(&api, "pdserve:2");
    for _ in 0..2 {
        reconciled(&api, &newer, &deployment).await;
        assert_eq!(image(&api), "pdserve:1");
    }
    let mut more = deployment.clone();
    more.spec.router.replicas = Some(3);
    reconciled(&api, &newer, &more).await;
    assert_eq!(api.find(PATH)["spec"]["replicas"], 3);
    assert_eq!(image(&api), "pdserve:1", "a number makes no new routers");
}

#[tokio::test]
async fn routers_of_an_operator_that_noted_nothing_are_kept() {
    let api = FakeApi::default();
    let deployment = mk_deployment("a", "ns");
    made_before(&api, &deployment).await;
    let mut stored = api.find(PATH);
    stored["metadata"]["annotations"] = json!({});
    api.put(PATH, stored);
    reconciled(&api, &mk_operator(&api, "pdserve:2"), &deployment).await;
    assert_eq!(image(&api), "pdserve:1");
}

#[tokio::test]
async fn another_spec_makes_new_routers() {
    let retries = |deployment: &mut PdDeployment| deployment.spec.router.retries.max += 1;
    let drain = |deployment: &mut PdDeployment| deployment.spec.drain.timeout_seconds += 1;
    for edit in [retries, drain] {
        let api = FakeApi::default();
        let mut deployment = mk_deployment("a", "ns");
        made_before(&api, &deployment).await;
        let newer = mk_operator(&api, "pdserve:2");
        reconciled(&api, &newer, &deployment).await;
        edit(&mut deployment);
        reconciled(&api, &newer, &deployment).await;
        assert_eq!(image(&api), "pdserve:2");
    }
}

#[tokio::test]
async fn what_another_client_writes_into_our_template_is_undone() {
    let api = FakeApi::default();
    let deployment = mk_deployment("a", "ns");
    let operator = mk_operator(&api, "pdserve:1");
    reconciled(&api, &operator, &deployment).await;
    for operator in [operator, mk_operator(&api, "pdserve:1")] {
        let mut stored = api.find(PATH);
        stored["spec"]["template"]["spec"]["containers"][0]["image"] = json!("theirs");
        stored["metadata"]["resourceVersion"] = json!("1000");
        observe(&operator, &stored);
        api.put(PATH, stored);
        reconciled(&api, &operator, &deployment).await;
        assert_eq!(image(&api), "pdserve:1");
    }
}

#[tokio::test]
async fn a_digest_is_of_the_text_that_operators_before_made() {
    let api = FakeApi::default();
    made_before(&api, &mk_deployment("a", "ns")).await;
    let template = api.find(PATH)["spec"]["template"].clone();
    let template: PodTemplateSpec = serde_json::from_value(template).expect("a template");
    let text = serde_json::to_string(&template).unwrap();
    let hex = format!("{:x}", Sha256::digest(text));
    assert_eq!(digest(Some(&template)), hex[..DIGITS]);
}
