//! Objects as an apiserver holds them, for tests, and an apiserver.

pub(crate) mod apiserver;

use crate::view::View;
use k8s_openapi::jiff::Timestamp;
use pd_crds::PdDeployment;
use pd_crds::pod::Pod;
use serde_json::{Value, json};

/// A time of the day of all fixtures.
pub(crate) fn at(time: &str) -> Timestamp {
    format!("2026-01-02T{time}Z").parse().expect("a time")
}

/// Pool counts: desired, routable, draining, updated.
pub(crate) fn pool([desired, routable, draining, updated]: [i32; 4]) -> Value {
    json!({"desired": desired, "current": desired, "ready": routable, "routable": routable,
        "draining": draining, "updated": updated, "summary": format!("{routable}/{desired}")})
}

pub(crate) fn condition(name: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": name, "status": status, "reason": reason, "message": message,
        "observedGeneration": 3, "lastTransitionTime": "2026-01-02T11:57:00Z"})
}

/// A deployment of one prefill and two decode workers that are all as wanted.
pub(crate) fn settled() -> Value {
    json!({
        "apiVersion": "pdserve.io/v1alpha1",
        "kind": "PDDeployment",
        "metadata": {"name": "tiny", "namespace": "ml", "generation": 3},
        "spec": {
            "model": {"source": {"hostPath": {"path": "/m.gguf"}}},
            "pools": {"prefill": {"replicas": 1}, "decode": {"replicas": 2}},
            "slo": {"ttftMs": 500},
        },
        "status": {
            "observedGeneration": 3,
            "conditions": [
                condition("Ready", "True", "Serving",
                    "a prefill and a decode worker serve behind a ready router"),
                condition("Progressing", "False", "AsWanted",
                    "everything is as the spec wants it"),
                condition("RouterReady", "True", "AllReady", "1 of 1 routers are ready"),
            ],
            "pools": {"prefill": pool([1, 1, 0, 1]), "decode": pool([2, 2, 0, 2])},
            "endpoint": "http://tiny.ml.svc:8000/v1",
            "kvCompat": "5f1c0a9be2d34417",
            "revision": {"current": "aaaaaaaaaa", "update": "aaaaaaaaaa"},
        },
    })
}

pub(crate) fn deployment(document: Value) -> PdDeployment {
    serde_json::from_value(document).expect("a PDDeployment")
}

pub(crate) fn view(document: Value, pods: Vec<Pod>) -> View {
    View {
        deployment: deployment(document),
        pods,
    }
}

/// The deployment of [`settled`] with all its pods.
pub(crate) fn settled_view() -> View {
    let pods = vec![
        serving("tiny-decode-0-0", "decode"),
        serving("tiny-decode-1-0", "decode"),
        serving("tiny-prefill-0-0", "prefill"),
        router("tiny-router-5d9f"),
    ];
    view(settled(), pods)
}

pub(crate) fn serving(name: &str, role: &str) -> Pod {
    let up = ["PodScheduled", "ContainersReady", "pdserve.io/routable"];
    let up = up.map(|name| json!({"type": name, "status": "True"}));
    mk_pod(name, role, json!({"phase": "Running", "conditions": up}))
}

pub(crate) fn loading(name: &str, role: &str) -> Pod {
    mk_pod(name, role, json!({"phase": "Running"}))
}

pub(crate) fn router(name: &str) -> Pod {
    let ready = json!([{"type": "Ready", "status": "True"}]);
    mk_pod(
        name,
        "router",
        json!({"phase": "Running", "conditions": ready}),
    )
}

pub(crate) fn leaving(name: &str, role: &str, since: &str) -> Pod {
    let mut pod = serving(name, role);
    let since = format!("2026-01-02T{since}Z");
    let annotations = [("pdserve.io/leaving-since".to_owned(), since)];
    pod.metadata.annotations = Some(annotations.into());
    pod
}

pub(crate) fn unschedulable(name: &str, role: &str) -> Pod {
    let lacks = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."});
    let status = json!({"phase": "Pending", "conditions": [lacks]});
    let mut pod = mk_pod(name, role, status);
    pod.spec.get_or_insert_default().node_name = None;
    pod
}

pub(crate) fn crashing(name: &str, role: &str) -> Pod {
    let container = json!({"name": "agent", "image": "i", "imageID": "", "ready": false,
        "restartCount": 3,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}},
        "lastState": {"terminated": {"exitCode": 1, "message": "error: no model at /m.gguf\n"}}});
    let status = json!({"phase": "Running", "containerStatuses": [container]});
    mk_pod(name, role, status)
}

fn mk_pod(name: &str, role: &str, status: Value) -> Pod {
    let pod = json!({
        "metadata": {
            "name": name,
            "namespace": "ml",
            "creationTimestamp": "2026-01-02T11:58:00Z",
            "labels": {
                "pdserve.io/deployment": "tiny",
                "pdserve.io/role": role,
                "pdserve.io/revision": "aaaaaaaaaa",
            },
        },
        "spec": {"nodeName": "node-a", "containers": []},
        "status": status,
    });
    serde_json::from_value(pod).expect("a Pod")
}
