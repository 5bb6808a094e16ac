//! `kubectl pd drain`: has the operator move a worker out, as it does when it scales in.

use crate::connection::{Cluster, patch_params};
use crate::text::{age, print};
use crate::view::{View, label, role_of};
use crate::worker::{State, leaving_since};
use anyhow::{Result, bail};
use k8s_openapi::jiff::{SignedDuration, Timestamp, Unit};
use kube::ResourceExt;
use kube::api::Patch;
use pd_crds::PdDeployment;
use pd_crds::pod::Pod;
use pd_protocol::labels;
use serde_json::json;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Between two looks at a pod that leaves.
const LOOK: Duration = Duration::from_secs(1);
/// What a pod may take beyond its drain: the operator's reaction and the kubelet's.
const REACTION: Duration = Duration::from_secs(60);

pub(crate) async fn drain(cluster: &Cluster, name: &str, wait: bool) -> Result<()> {
    let pod: Pod = cluster.get(name).await?;
    check(&pod)?;
    let deployment = cluster.deployment(label(&pod, labels::DEPLOYMENT)).await?;
    let view = View::read(cluster, deployment).await?;
    if let Some(since) = leaving_since(&pod) {
        print(&format!(
            "{name} leaves already, for {}\n",
            age(since, Timestamp::now())
        ))?;
    } else {
        leave(cluster, &pod).await?;
        print(&announce(&view, &pod))?;
    }
    if wait {
        await_end(cluster, &pod, &view.deployment).await?;
    }
    Ok(())
}

/// Refuses a pod that the operator would not move.
fn check(pod: &Pod) -> Result<()> {
    let name = pod.name_any();
    if labels::is_follower(pod.labels()) {
        let leader = pod.owner_references().first();
        let leader = leader.map_or("its leader", |leader| leader.name.as_str());
        bail!(
            "{name} is a further node of a replica; drain that whole: `kubectl pd drain {leader}`"
        );
    }
    if role_of(pod).is_some() && !label(pod, labels::DEPLOYMENT).is_empty() {
        return Ok(());
    }
    if label(pod, labels::ROLE) == "router" {
        bail!(
            "{name} is a router: delete it with `kubectl delete pod {name}`, it finishes its streams and its Deployment replaces it"
        );
    }
    bail!(
        "{name} is no worker of a PDDeployment; `kubectl get pods -l '{} in (prefill,decode)'` lists them",
        labels::ROLE
    )
}

async fn leave(cluster: &Cluster, pod: &Pod) -> Result<()> {
    let now = Timestamp::now();
    let now = now.round(Unit::Second).unwrap_or(now);
    // The UID: never a successor of the same name.
    let patch = json!({"metadata": {
        "uid": pod.uid(),
        "annotations": {labels::LEAVING_SINCE: now.to_string()},
        "labels": {labels::LEAVING: "true"},
    }});
    let (name, api) = (pod.name_any(), cluster.api::<Pod>());
    let patched = api
        .patch(&name, &patch_params(), &Patch::Merge(patch))
        .await;
    patched.map_err(|error| cluster.failed::<Pod>("mark", &name, &error))?;
    Ok(())
}

/// What happens next.
fn announce(view: &View, pod: &Pod) -> String {
    let name = pod.name_any();
    let limit = view.deployment.spec.drain.timeout_seconds;
    let mut text = format!(
        "{name} leaves: routers send it nothing new, its requests have {limit} s to finish, then its pod is deleted. The operator starts another in its place.\n"
    );
    let others = role_of(pod)
        .into_iter()
        .flat_map(|role| view.workers_of(role));
    let mut others = others.filter(|other| other.name_any() != name);
    if !others.any(|other| State::of(other) == State::Serving) {
        let role = label(pod, labels::ROLE);
        text.push_str(&format!(
            "No other {role} worker serves: new requests fail until its successor does.\n"
        ));
    }
    text
}

async fn await_end(cluster: &Cluster, pod: &Pod, deployment: &PdDeployment) -> Result<()> {
    let name = pod.name_any();
    let drain = deployment.spec.drain.timeout_seconds;
    let grace = pod
        .spec
        .as_ref()
        .and_then(|s| s.termination_grace_period_seconds);
    let limit = SignedDuration::from_secs(i64::from(drain) + grace.unwrap_or(0));
    let limit = limit.unsigned_abs() + REACTION;
    let began = Instant::now();
    while began.elapsed() < limit {
        let found = cluster.api::<Pod>().get_opt(&name).await;
        let found = found.map_err(|error| cluster.failed::<Pod>("read", &name, &error))?;
        if found.is_none_or(|found| found.uid() != pod.uid()) {
            let took = began.elapsed().as_secs();
            return print(&format!("{name} is gone after {took} s\n"));
        }
        sleep(LOOK).await;
    }
    bail!(
        "{name} is still there after {} s; `kubectl pd explain {}` says what holds it",
        limit.as_secs(),
        deployment.name_any()
    )
}

#[cfg(test)]
mod tests {
    //! Facts about drains.

    use super::*;
    use crate::fixture::apiserver::Apiserver;
    use crate::fixture::{router, serving, settled, settled_view, view};
    use http::StatusCode;

    fn refusal(pod: &Pod) -> String {
        check(pod).map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn only_workers_are_drained() {
        assert_eq!(refusal(&serving("p", "prefill")), "");
        assert!(refusal(&router("r")).starts_with("r is a router: delete it"));
        let mut follower = serving("p-1", "prefill");
        let rank = (labels::NODE_RANK.to_owned(), "1".to_owned());
        follower
            .metadata
            .labels
            .get_or_insert_default()
            .extend([rank]);
        assert!(refusal(&follower).starts_with("p-1 is a further node of a replica; drain"));
        let mut stranger = serving("s", "decode");
        stranger.metadata.labels = None;
        assert!(refusal(&stranger).starts_with("s is no worker of a PDDeployment"));
    }

    #[test]
    fn the_last_worker_of_a_pool_is_announced_as_such() {
        let printed = announce(&settled_view(), &serving("tiny-decode-0-0", "decode"));
        assert!(printed.contains("its requests have"), "{printed}");
        assert!(!printed.contains("No other"), "{printed}");
        let alone = serving("tiny-prefill-0-0", "prefill");
        let printed = announce(&view(settled(), vec![alone.clone()]), &alone);
        assert!(
            printed.contains("No other prefill worker serves"),
            "{printed}"
        );
    }

    #[tokio::test]
    async fn a_worker_is_marked_under_its_uid() {
        let path = "/api/v1/namespaces/ml/pods/p";
        let mut pod = serving("p", "decode");
        pod.metadata.uid = Some("u-1".to_owned());
        let apiserver = Apiserver::default();
        apiserver.answers("PATCH", path, StatusCode::OK, json!(pod));
        leave(&apiserver.cluster(), &pod).await.unwrap();
        let written = apiserver.written("PATCH", path);
        assert_eq!(written["metadata"]["uid"], "u-1");
        let since = &written["metadata"]["annotations"][labels::LEAVING_SINCE];
        let since = since.as_str().unwrap().parse::<Timestamp>();
        assert!(since.is_ok(), "{written}");
    }

    #[tokio::test]
    async fn a_pod_that_is_not_there_is_named_with_its_namespace() {
        let error = drain(&Apiserver::default().cluster(), "p", false).await;
        assert_eq!(
            error.unwrap_err().to_string(),
            "cannot read Pod p in namespace ml: /api/v1/namespaces/ml/pods/p not found; `kubectl get pods --all-namespaces` lists what there is"
        );
    }
}
