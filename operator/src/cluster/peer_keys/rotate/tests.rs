//! Facts about rotations that are carried out, without pods: the operator is the only process then.

use super::*;
use crate::cluster::context::Context;
use crate::cluster::fake::{FakeApi, create, mk_config, mk_deployment, reconciled};
use crate::cluster::reconcile::reconcile;
use http::Method;
use pd_crds::PdDeployment;
use pd_protocol::labels::ROTATE_PEER_KEYS;
use serde_json::json;
use std::sync::Arc;

const SECRET: &str = "/api/v1/namespaces/ns/secrets/a-peer-keys";

struct Stand {
    api: FakeApi,
    context: Arc<Context>,
    deployment: PdDeployment,
}

impl Stand {
    /// A deployment that has keys.
    async fn new() -> Self {
        let api = FakeApi::default();
        let stand = Self {
            context: Arc::new(api.context(mk_config())),
            deployment: mk_deployment("a", "ns"),
            api,
        };
        stand.reconcile().await;
        stand
    }

    fn ask(&mut self, value: &str) {
        let annotations = self.deployment.annotations_mut();
        annotations.insert(ROTATE_PEER_KEYS.to_owned(), value.to_owned());
    }

    /// One reconcile, for which nothing is held back any more: all have agreed for long enough, statuses are due.
    async fn reconcile(&self) {
        self.let_time_pass();
        reconciled(&self.api, &self.context, &self.deployment).await;
    }

    fn let_time_pass(&self) {
        let ago = Instant::now().checked_sub(Duration::from_secs(1));
        self.context.memories.update("uid-of-a", |memory| {
            memory.statuses.pending_since = ago;
            let keys = memory.peer_keys.as_mut();
            if let Some(agreement) = keys.and_then(|keys| keys.agreement.as_mut()) {
                agreement.age();
            }
        });
    }

    /// Another operator takes over, which knows nothing but what the watches report.
    fn take_over(&mut self) {
        self.context = Arc::new(self.api.context(mk_config()));
        self.api.report_pods(&self.context, &self.deployment);
        self.api.report_pools(&self.context, &self.deployment);
    }

    fn secret(&self) -> Secret {
        serde_json::from_value(self.api.find(SECRET)).expect("a Secret")
    }

    fn ids(&self) -> Vec<String> {
        text::ids(text_of(&self.secret()))
    }

    fn mark(&self, name: &str) -> Option<String> {
        self.secret().annotations().get(name).cloned()
    }

    /// What the status says, with its reason.
    fn condition(&self) -> Option<(String, String)> {
        let memories = &self.context.memories;
        let written = memories.read("uid-of-a", |memory| memory.statuses.deployment.clone());
        let (_, status) = written.flatten().expect("a status was written");
        let mut conditions = status.conditions.into_iter();
        let of_keys = conditions.find(|is| is.type_ == "PeerKeysRotated")?;
        Some((of_keys.status, of_keys.reason))
    }
}

fn is(status: &str, reason: &str) -> Option<(String, String)> {
    Some((status.to_owned(), reason.to_owned()))
}

#[tokio::test]
async fn a_key_is_replaced_in_steps_also_by_operators_that_take_over() {
    for takes_over in [false, true] {
        let mut stand = Stand::new().await;
        let first = stand.ids();
        stand.ask("1");
        let mut seen = vec![first.clone()];
        for _ in 0..12 {
            stand.reconcile().await;
            if stand.ids() != seen[seen.len() - 1] {
                seen.push(stand.ids());
                if takes_over {
                    stand.take_over();
                }
            }
        }
        let [a, n] = [&first[0], &seen[1][1]].map(Clone::clone);
        let steps = [
            vec![a.clone()],
            vec![a.clone(), n.clone()],
            vec![n.clone(), a],
            vec![n],
        ];
        assert_eq!(seen, steps);
        assert_eq!(stand.mark(PEER_KEYS_ROTATED).as_deref(), Some("1"));
        assert_eq!(stand.mark(PEER_KEYS_ROTATING), None);
        let events = stand.api.stored(|it| it["reason"] == "PeerKeyRotation");
        assert_eq!(events.len(), 4, "one of each step, and of the end");
        assert_eq!(stand.condition(), is("True", "Rotated"));
        stand.api.take_writes();
        stand.reconcile().await;
        let writes = stand.api.take_writes();
        assert!(
            !writes.iter().any(|write| write.contains("secrets")),
            "{writes:?}"
        );
    }
}

#[tokio::test]
async fn what_another_has_changed_meanwhile_is_not_overwritten() {
    let mut stand = Stand::new().await;
    stand.ask("1");
    stand.api.refuse(Method::PUT, SECRET, 409);
    let before = stand.secret();
    stand.reconcile().await;
    assert_eq!(stand.secret(), before);
    stand.api.permit_all();
    stand.reconcile().await;
    assert_eq!(stand.ids().len(), 2);
    let mut edited = stand.api.find(SECRET);
    edited["data"][PEER_SECRET_KEY] = json!(ByteString("h".repeat(32).into_bytes()));
    edited["metadata"]["resourceVersion"] = json!("theirs");
    stand.api.put(SECRET, edited);
    let theirs = stand.ids();
    for _ in 0..3 {
        stand.reconcile().await;
    }
    assert_eq!(stand.ids(), theirs);
    assert_eq!(stand.condition(), is("False", "RotationHeld"));
    stand.ask("2");
    for _ in 0..8 {
        stand.reconcile().await;
    }
    assert_eq!(stand.mark(PEER_KEYS_ROTATED).as_deref(), Some("2"));
    assert_ne!(stand.ids(), theirs);
}

#[tokio::test]
async fn a_secret_that_is_lost_comes_back_where_the_rotation_was() {
    let mut stand = Stand::new().await;
    stand.ask("1");
    stand.reconcile().await;
    let (ids, rotating) = (stand.ids(), stand.mark(PEER_KEYS_ROTATING));
    assert_eq!((ids.len(), rotating.is_some()), (2, true));
    stand.api.remove(SECRET);
    let deployment = Arc::new(stand.deployment.clone());
    create(&stand.api, &stand.deployment);
    reconcile(deployment, Arc::clone(&stand.context))
        .await
        .unwrap();
    assert_eq!(stand.ids(), ids);
    assert_eq!(stand.mark(PEER_KEYS_ROTATING), rotating);
}

#[tokio::test]
async fn a_deployment_that_is_new_or_plain_or_refused_the_write_is_left_as_it_is() {
    let mut stand = Stand::new().await;
    stand.api.remove(SECRET);
    stand.take_over();
    stand.ask("1");
    stand.reconcile().await;
    stand.reconcile().await;
    assert_eq!(
        (stand.ids().len(), stand.mark(PEER_KEYS_ROTATED).as_deref()),
        (1, Some("1"))
    );
    assert_eq!(stand.condition(), is("True", "Rotated"));

    stand.ask("2");
    stand.api.refuse(Method::PUT, SECRET, 403);
    create(&stand.api, &stand.deployment);
    let deployment = Arc::new(stand.deployment.clone());
    let failed = reconcile(deployment, Arc::clone(&stand.context)).await;
    let error = failed.expect_err("refused").to_string();
    assert!(error.starts_with("replace Secret a-peer-keys: "), "{error}");
    stand.api.permit_all();
    stand.deployment.spec.security.peers = pd_crds::security::PeerTrust::Plain;
    stand.reconcile().await;
    assert_eq!(stand.ids().len(), 1);
    assert_eq!(stand.condition(), None);
}
