//! Facts about the keys of a deployment's processes.

use super::*;
use crate::cluster::context::Context;
use crate::cluster::fake::{FakeApi, create, mk_config, mk_deployment, reconciled};
use crate::cluster::reconcile::reconcile;
use http::Method;
use pd_crds::PdDeployment;
use pd_crds::security::PeerTrust;
use pd_identity::KeyId;
use serde_json::json;
use std::sync::Arc;

const SECRET: &str = "/api/v1/namespaces/ns/secrets/a-peer-keys";
const DEPLOYMENT: &str = "/apis/pdserve.io/v1alpha1/namespaces/ns/pddeployments/a";

struct Stand {
    api: FakeApi,
    context: Arc<Context>,
    deployment: PdDeployment,
}

impl Stand {
    fn new() -> Self {
        let api = FakeApi::default();
        Self {
            context: Arc::new(api.context(mk_config())),
            deployment: mk_deployment("a", "ns"),
            api,
        }
    }

    async fn reconcile(&self) {
        reconciled(&self.api, &self.context, &self.deployment).await;
    }

    /// What a reconcile reports as failed, and the status with it.
    async fn failure(&self) -> String {
        create(&self.api, &self.deployment);
        let deployment = Arc::new(self.deployment.clone());
        let failed = reconcile(deployment, Arc::clone(&self.context)).await;
        let error = failed.expect_err("the keys lack").to_string();
        let status = self.api.find(DEPLOYMENT)["status"]["conditions"].to_string();
        assert!(status.contains("CannotApply"), "{status}");
        error
    }

    fn known(&self) -> Vec<KeyId> {
        let memories = &self.context.memories;
        let keys = memories.read("uid-of-a", |memory| memory.peer_keys.clone());
        let keys = keys.flatten().expect("keys are known");
        keys.identity
            .key_ids()
            .into_iter()
            .map(|(id, _)| id)
            .collect()
    }

    /// As if they were read long ago.
    fn age(&self) {
        self.context.memories.update("uid-of-a", |memory| {
            let keys = memory.peer_keys.as_mut().expect("keys are known");
            keys.read = keys.read.checked_sub(READ_AGAIN).expect("an old machine");
        });
    }

    fn store(&self, text: &str) {
        let mut secret = self.api.find(SECRET);
        secret["data"][PEER_SECRET_KEY] = json!(ByteString(text.as_bytes().to_vec()));
        self.api.put(SECRET, secret);
    }
}

#[tokio::test]
async fn keys_are_made_once_belong_to_the_deployment_and_may_be_changed() {
    let stand = Stand::new();
    stand.reconcile().await;
    let secret = stand.api.find(SECRET);
    assert_eq!(secret["metadata"]["ownerReferences"][0]["uid"], "uid-of-a");
    assert!(secret["immutable"].is_null(), "{secret}");
    let first = stand.known();
    assert_eq!(first.len(), 1);
    stand.age();
    stand.reconcile().await;
    assert_eq!(stand.known(), first);
}

#[tokio::test]
async fn changed_keys_are_followed_and_lost_ones_come_back() {
    let stand = Stand::new();
    stand.reconcile().await;
    stand.store(&format!("{}\n{}\n", "a".repeat(32), "b".repeat(32)));
    stand.age();
    stand.reconcile().await;
    let changed = stand.known();
    assert_eq!(changed.len(), 2);
    let stored = stand.api.find(SECRET)["data"].clone();
    stand.api.remove(SECRET);
    stand.age();
    stand.reconcile().await;
    assert_eq!(
        (stand.known(), &stand.api.find(SECRET)["data"]),
        (changed, &stored)
    );
}

#[tokio::test]
async fn keys_that_cannot_be_used_are_reported_and_the_rest_goes_on() {
    let mut stand = Stand::new();
    stand.reconcile().await;
    let known = stand.known();
    stand.store("short\n");
    stand.age();
    stand.deployment.spec.pools.decode.replicas = Some(2);
    let error = stand.failure().await;
    assert!(error.starts_with("Secret a-peer-keys, line 1: "), "{error}");
    assert_eq!(stand.known(), known, "they serve on");
    let second = stand.api.find("/api/v1/namespaces/ns/pods/a-decode-1-1");
    assert!(!second.is_null());
    let theirs = json!({"metadata": {"name": "a-peer-keys", "uid": "theirs"}});
    stand.api.put(SECRET, theirs);
    let error = stand.failure().await;
    assert!(error.contains("Secret a-peer-keys exists"), "{error}");
}

#[tokio::test]
async fn keys_that_cannot_be_made_are_reported_and_made_as_soon_as_they_can_be() {
    let mut stand = Stand::new();
    stand.deployment.spec.security.peers = PeerTrust::Plain;
    stand.reconcile().await;
    assert!(stand.api.find(SECRET).is_null());
    stand.deployment.spec.security.peers = PeerTrust::Authenticated;
    let secrets = "/api/v1/namespaces/ns/secrets";
    stand.api.refuse(Method::POST, secrets, 403);
    let error = stand.failure().await;
    assert!(error.starts_with("create Secret a-peer-keys"), "{error}");
    stand.api.permit_all();
    stand.reconcile().await;
    assert_eq!(stand.known().len(), 1);
}
