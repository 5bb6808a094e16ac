//! Facts about what deployments share, with an apiserver in memory.

use super::*;
use crate::cluster::facts::all_facts;
use crate::cluster::fake::{FakeApi, create, mk_config, mk_deployment, reconciled};
use crate::cluster::nodes::Nodes;
use crate::cluster::reconcile::reconcile;
use crate::controller::build::config::BuildConfig;
use crate::controller::build::network::Admins;
use crate::controller::build::shared::ROUTERS;
use http::Method;
use kube::runtime::{reflector, watcher};
use pd_crds::pod::Pod;
use pd_crds::security::PeerTrust;
use pd_protocol::labels;
use serde_json::{Value, json};

/// Objects that a deployment may have of its own beside its pods.
const OBJECTS_MAX: usize = 9;

fn with_policies() -> BuildConfig {
    BuildConfig {
        admins: Some(Admins {
            operator_namespace: Some("pdserve-system".to_owned()),
            ..Admins::default()
        }),
        ..mk_config()
    }
}

fn is_own(object: &Value, deployment: &str) -> bool {
    let is_child = object["kind"] != "PDDeployment" && object["kind"] != "Pod";
    is_child && object["metadata"]["labels"][labels::DEPLOYMENT] == deployment
}

fn is_shared(object: &Value) -> bool {
    object["metadata"]["labels"][labels::SHARED] == "true"
}

fn last_parts(paths: &[String]) -> Vec<String> {
    let parts = paths.iter().map(|path| {
        let mut parts = path.rsplit('/');
        let (name, kind) = (parts.next().unwrap(), parts.next().unwrap());
        format!("{kind}/{name}")
    });
    parts.collect()
}

#[tokio::test]
async fn a_deployment_has_nine_objects_of_its_own_at_most() {
    let api = FakeApi::default();
    let context = Arc::new(api.context(with_policies()));
    reconciled(&api, &context, &mk_deployment("a", "ns")).await;
    let own = api.stored(|object| is_own(object, "a"));
    assert!(own.len() <= OBJECTS_MAX, "{own:#?}");
    let shared = api.stored(is_shared);
    assert_eq!(
        last_parts(&shared),
        [
            "serviceaccounts/pdserve-routers",
            "networkpolicies/pdserve-routers",
            "networkpolicies/pdserve-workers",
            "rolebindings/pdserve-routers",
        ]
    );
}

#[tokio::test]
async fn the_second_deployment_of_a_namespace_writes_nothing_that_is_shared() {
    let api = FakeApi::default();
    let context = Arc::new(api.context(with_policies()));
    reconciled(&api, &context, &mk_deployment("a", "ns")).await;
    api.take_writes();
    reconciled(&api, &context, &mk_deployment("b", "ns")).await;
    let writes = api.take_writes();
    assert!(
        !writes.iter().any(|it| it.contains("pdserve-")),
        "{writes:#?}"
    );
    reconciled(&api, &context, &mk_deployment("c", "other")).await;
    let writes = api.take_writes();
    let account = "PATCH /api/v1/namespaces/other/serviceaccounts/pdserve-routers";
    assert!(writes.iter().any(|it| it == account), "{writes:#?}");
}

#[tokio::test]
async fn what_is_missing_is_written_again_by_any_of_the_deployments() {
    let api = FakeApi::default();
    let context = Arc::new(api.context(mk_config()));
    let (a, b) = (mk_deployment("a", "ns"), mk_deployment("b", "ns"));
    reconciled(&api, &context, &a).await;
    context.index.bindings.take(&shared_key("ns"), ROUTERS);
    api.take_writes();
    reconciled(&api, &context, &b).await;
    let writes = api.take_writes();
    let shared = writes.iter().filter(|it| it.contains("pdserve-routers"));
    let binding =
        "PATCH /apis/rbac.authorization.k8s.io/v1/namespaces/ns/rolebindings/pdserve-routers";
    assert_eq!(shared.collect::<Vec<_>>(), [binding]);
}

#[tokio::test]
async fn policies_that_are_made_no_more_are_removed() {
    let api = FakeApi::default();
    let mut context = api.context(with_policies());
    let shared = Arc::new(context);
    reconciled(&api, &shared, &mk_deployment("a", "ns")).await;
    context = Arc::into_inner(shared).expect("there is no other holder");
    context.config.admins = None;
    reconciled(&api, &Arc::new(context), &mk_deployment("a", "ns")).await;
    let left = api.stored(|object| object["kind"] == "NetworkPolicy");
    assert!(left.is_empty(), "{left:#?}");
}

#[tokio::test]
async fn one_of_the_same_name_that_was_made_since_stays_known() {
    let api = FakeApi::default();
    let mut context = api.context(with_policies());
    let shared = Arc::new(context);
    reconciled(&api, &shared, &mk_deployment("a", "ns")).await;
    let policies = "/apis/networking.k8s.io/v1/namespaces/ns/networkpolicies";
    api.refuse(Method::DELETE, &format!("{policies}/pdserve-routers"), 409);
    let known = |context: &Context| {
        let known = context.index.policies.of(&shared_key("ns"));
        let names = known.iter().map(|stored| stored.name.clone());
        names.collect::<Vec<_>>()
    };
    shared.remove_shared(|_| true).await.expect("removed");
    assert_eq!(known(&shared), ["pdserve-routers"]);

    reconciled(&api, &shared, &mk_deployment("a", "ns")).await;
    context = Arc::into_inner(shared).expect("there is no other holder");
    context.config.admins = None;
    let shared = Arc::new(context);
    reconciled(&api, &shared, &mk_deployment("a", "ns")).await;
    assert_eq!(known(&shared), ["pdserve-routers"]);
}

#[tokio::test]
async fn what_is_shared_stays_until_the_last_deployment_of_the_namespace_has_gone() {
    let api = FakeApi::default();
    let context = Arc::new(api.context(with_policies()));
    let (listed, mut writer) = reflector::store();
    let all = [
        mk_deployment("a", "ns"),
        mk_deployment("b", "ns"),
        mk_deployment("c", "other"),
    ];
    for deployment in &all {
        writer.apply_watcher_event(&watcher::Event::Apply(deployment.clone()));
        reconciled(&api, &context, deployment).await;
    }
    let of = |namespace: &'static str| {
        let is_there =
            move |object: &Value| is_shared(object) && object["metadata"]["namespace"] == namespace;
        api.stored(is_there).len()
    };
    let [a, b, _] = all;
    for (gone, left) in [(a, 4), (b, 0)] {
        writer.apply_watcher_event(&watcher::Event::Delete(gone));
        let removed = context.remove_shared(|namespace| is_deserted(namespace, &listed));
        removed.await.expect("removed");
        assert_eq!((of("ns"), of("other")), (left, 4));
    }
    reconciled(&api, &context, &mk_deployment("d", "ns")).await;
    assert_eq!(of("ns"), 4, "a new one makes them again");
}

#[tokio::test]
async fn an_object_of_another_owner_is_not_taken_for_the_shared_one() {
    let api = FakeApi::default();
    let context = Arc::new(api.context(mk_config()));
    let path = "/api/v1/namespaces/ns/serviceaccounts/pdserve-routers";
    api.put(
        path,
        json!({"metadata": {"name": "pdserve-routers", "uid": "theirs"}}),
    );
    let deployment = mk_deployment("a", "ns");
    create(&api, &deployment);
    let error = reconcile(Arc::new(deployment), context)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("ServiceAccount pdserve-routers exists"),
        "{error}"
    );
}

#[test]
fn a_change_of_what_is_shared_concerns_all_deployments_of_the_namespace() {
    let (listed, mut writer) = reflector::store();
    for (name, namespace) in [("a", "ns"), ("b", "ns"), ("c", "other")] {
        writer.apply_watcher_event(&watcher::Event::Apply(mk_deployment(name, namespace)));
    }
    let mut names: Vec<String> = deployments_of(shared_key("ns"), &listed)
        .into_iter()
        .map(|key| key.name)
        .collect();
    names.sort();
    assert_eq!(names, ["a", "b"]);
    let own = ObjectRef::new("x").within("ns");
    assert_eq!(deployments_of(own.clone(), &listed), [own]);
}

/// A router's pod of an account.
fn mk_router(account: &str) -> Pod {
    let pod = json!({
        "metadata": {"name": "r", "labels": {labels::ROLE: "router"}},
        "spec": {"serviceAccountName": account, "containers": [{"name": "router"}]},
    });
    serde_json::from_value(pod).expect("a Pod")
}

#[test]
fn a_former_account_stays_as_long_as_routers_run_under_it_or_are_to() {
    let deployment = mk_deployment("a", "ns");
    let of = |wanted: &str, routers: &[&str]| {
        let wanted = json!({"spec": {"selector": {}, "template": {"spec": {
            "serviceAccountName": wanted, "containers": [],
        }}}});
        let wanted = serde_json::from_value(wanted).expect("a Deployment");
        let pods = routers.iter().map(|account| Arc::new(mk_router(account)));
        let facts = all_facts(&deployment, pods.collect(), &Nodes::default());
        FormerAccount::of(&deployment, &wanted, &facts)
    };
    let own = "a-router";
    assert_eq!(of(own, &[own]), FormerAccount::Kept);
    assert_eq!(of(own, &[]), FormerAccount::Kept);
    assert_eq!(of(ROUTERS, &[own, ROUTERS]), FormerAccount::Leaves);
    assert_eq!(of(ROUTERS, &[ROUTERS]), FormerAccount::Unused);
}

#[tokio::test]
async fn a_policy_of_ones_own_stays_as_long_as_a_worker_needs_it() {
    let api = FakeApi::default();
    let context = Arc::new(api.context(with_policies()));
    let mut deployment = mk_deployment("a", "ns");
    deployment.spec.security.peers = PeerTrust::Plain;
    let own = || {
        let named = api.stored(|it| it["metadata"]["name"] == "a-workers");
        named
            .iter()
            .filter(|path| path.contains("policies"))
            .count()
    };
    reconciled(&api, &context, &deployment).await;
    assert_eq!(own(), 1);
    let key = ObjectRef::from_obj(&deployment);
    let stored = "/apis/networking.k8s.io/v1/namespaces/ns/networkpolicies/a-workers";
    let stored: NetworkPolicy = serde_json::from_value(api.find(stored)).expect("a policy");
    context.index.policies.put_metadata(&key, &stored.metadata);
    api.report_pods(&context, &deployment);
    deployment.spec.security.peers = PeerTrust::Authenticated;
    deployment.metadata.generation = Some(2);
    reconciled(&api, &context, &deployment).await;
    assert_eq!(own(), 1, "its workers still know no peers");
}

/// A namespace as an earlier operator left it: an account and policies for each deployment.
#[tokio::test]
async fn what_a_deployment_had_alone_goes_after_the_shared_objects_are_there() {
    let api = FakeApi::default();
    let context = Arc::new(api.context(with_policies()));
    let deployment = mk_deployment("a", "ns");
    let Account { account, binding } = build_former_account(&deployment, &context.config);
    let key = ObjectRef::from_obj(&deployment);
    let former = "rolebindings/a-router";
    api.put(
        "/api/v1/namespaces/ns/serviceaccounts/a-router",
        json!(account),
    );
    let path = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/ns/{former}");
    api.put(&path, json!(binding));
    context.index.accounts.put_metadata(&key, &account.metadata);
    context.index.bindings.put_metadata(&key, &binding.metadata);
    reconciled(&api, &context, &deployment).await;
    let writes = api.take_writes();
    let at = |text: &str| writes.iter().position(|it| it.contains(text));
    let (made, deleted) = (at("rolebindings/pdserve-routers"), at(former));
    assert!(made.is_some() && made < deleted, "{writes:#?}");
    assert!(
        writes
            .iter()
            .any(|it| it.starts_with("DELETE") && it.contains("serviceaccounts/a-router"))
    );
}
