//! An object of each phase, as the operator writes its status: what Argo CD's scripts and kstatus are tried on
//! (`make charts`). `INSTA_UPDATE=always` writes the files again.

use super::*;
use pd_crds::json_order::sorted;
use pd_crds::pd_pool::{PdPoolSpec, PoolRole};
use pd_crds::status::UNSEEN;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// 2026-07-01, noon, UTC.
const NOW: i64 = 1_782_907_200;
const LONG_AGO: i64 = NOW - 100_000;

/// What runs, and what is wanted of it.
struct Scene {
    deployment: PdDeployment,
    replicas: u32,
    pods: Vec<ObservedPod>,
    inputs: StatusInputs,
}

// === impl Scene ===

impl Scene {
    /// `replicas` of each worker behind a router; all serve.
    fn of(replicas: u32) -> Self {
        let mut deployment = mk_deployment();
        deployment.metadata.name = Some("smollm2".to_owned());
        deployment.metadata.namespace = Some("default".to_owned());
        deployment.metadata.uid = Some("7f3c".to_owned());
        let pods = [Prefill, Decode].into_iter().flat_map(|component| {
            (0..replicas).map(move |ordinal| mk_pod(component, ordinal, true))
        });
        let mut inputs = mk_inputs(1);
        inputs.endpoint = "http://smollm2.default.svc:8000/v1".to_owned();
        inputs.progressed = Some(at(NOW));
        Self {
            deployment,
            replicas,
            pods: pods.collect(),
            inputs,
        }
    }

    fn decode(&mut self) -> &mut ObservedPod {
        let mut pods = self.pods.iter_mut().rev();
        pods.next().expect("a worker decodes")
    }

    /// All workers leave.
    fn leaving(mut self) -> Self {
        for pod in &mut self.pods {
            pod.leaving = Some(Leaving::default());
        }
        self.replicas = 0;
        self
    }

    /// Half of the workers are of the revision before.
    fn replaced_by_half(mut self) -> Self {
        for pod in self.pods.iter_mut().filter(|pod| pod.slot.ordinal == 0) {
            pod.revision = "before".to_owned();
        }
        self
    }

    fn broken(mut self) -> Self {
        self.decode().admitted = false;
        self.inputs.stuck = Some(Stuck {
            cause: Cause::Broken,
            message:
                "smollm2-decode-0-1: agent ended: error: --page-size 7 is not one of 1, 16, 64"
                    .to_owned(),
        });
        self
    }

    fn paused(mut self) -> Self {
        self.deployment.spec.rollout.paused = true;
        self
    }

    fn suspended(mut self) -> Self {
        self.deployment.spec.suspend = true;
        self.inputs.suspended = true;
        self
    }

    fn with(mut self, change: impl FnOnce(&mut StatusInputs)) -> Self {
        change(&mut self.inputs);
        self
    }

    fn overdue(self) -> Self {
        self.with(|inputs| inputs.progressed = Some(at(LONG_AGO)))
    }

    fn object(mut self) -> Value {
        let desired = [Prefill, Decode].map(|component| mk_desired(component, self.replicas));
        let observed = Observed {
            pods: self.pods,
            ..Observed::default()
        };
        let new = status(&self.deployment, &desired, &observed, &self.inputs, at(NOW));
        self.deployment.status = Some(new);
        json!(self.deployment)
    }
}

const REFUSED: &str = "spec.pools.decode.podTemplate.spec.hostNetwork: raises privileges";

fn deployments() -> Vec<(&'static str, Value)> {
    let mut new = json!(Scene::of(1).deployment);
    new["status"] = json!({"observedGeneration": UNSEEN});
    let mut edited = Scene::of(1).object();
    edited["metadata"]["generation"] = json!(4);
    let mut deleted = Scene::of(1).leaving().object();
    deleted["metadata"]["deletionTimestamp"] = json!("2026-07-01T12:00:00Z");
    deleted["metadata"]["deletionGracePeriodSeconds"] = json!(0);
    let mut loading = Scene::of(1);
    for pod in &mut loading.pods {
        (pod.ready, pod.admitted) = (false, false);
    }
    let mut invalid = Scene::of(1).deployment;
    let refusal = refused(&invalid, INVALID_SPEC, REFUSED, at(NOW));
    invalid.status = Some(refusal);
    let quota = "apply Deployment smollm2-router: deployments.apps \"smollm2-router\" is forbidden: exceeded quota: team";
    let no_router = |inputs: &mut StatusInputs| inputs.routers = (0, 1);
    vec![
        ("new", new),
        ("edited", edited),
        ("deleted", deleted),
        ("loading", loading.object()),
        ("serving", Scene::of(1).object()),
        ("rolling", Scene::of(2).replaced_by_half().object()),
        ("paused", Scene::of(2).replaced_by_half().paused().object()),
        ("paused-at-rest", Scene::of(1).paused().object()),
        (
            "paused-for-long",
            Scene::of(2).replaced_by_half().paused().overdue().object(),
        ),
        ("suspending", Scene::of(1).leaving().suspended().object()),
        ("suspended", Scene::of(0).suspended().object()),
        ("zero", Scene::of(0).object()),
        ("does-not-start", Scene::of(1).broken().object()),
        ("overdue", Scene::of(1).broken().overdue().object()),
        ("cannot-apply", {
            let mut scene = Scene::of(1).with(|inputs| inputs.trouble = Some(quota.to_owned()));
            scene.decode().admitted = false;
            scene.object()
        }),
        ("invalid", json!(invalid)),
        (
            "invalid-and-serving",
            Scene::of(1)
                .with(|inputs| inputs.refused = Some(REFUSED.to_owned()))
                .object(),
        ),
        ("router-gone", Scene::of(1).with(no_router).object()),
        (
            "router-does-not-start",
            Scene::of(1).with(no_router).overdue().object(),
        ),
        (
            "routers-move",
            Scene::of(1)
                .with(|inputs| inputs.replaces_routers = true)
                .object(),
        ),
    ]
}

fn pools() -> Vec<(&'static str, Value)> {
    let pool = |replicas: u32, scene: &Scene| {
        let wanted = mk_desired(Decode, replicas);
        let counts = pool_status(Decode, &[wanted], &scene.pods);
        let selector = "pdserve.io/deployment=smollm2,pdserve.io/role=decode";
        let spec = PdPoolSpec {
            deployment: "smollm2".to_owned(),
            role: PoolRole::Decode,
            replicas: i32::try_from(replicas).unwrap(),
        };
        let mut object = pd_crds::PdPool::new("smollm2-decode", spec);
        object.metadata.namespace = Some("default".to_owned());
        object.metadata.generation = Some(2);
        object.status = Some(of_pool(&counts, selector.to_owned(), Some(2)));
        json!(object)
    };
    let mut new = pool(1, &Scene::of(0));
    new["status"] = json!({"observedGeneration": UNSEEN});
    vec![
        ("new", new),
        ("growing", pool(2, &Scene::of(1))),
        ("whole", pool(2, &Scene::of(2))),
        ("shrinking", pool(1, &Scene::of(2))),
        ("empty", pool(0, &Scene::of(0))),
    ]
}

fn folder(kind: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../contrib/argocd/pdserve.io");
    root.join(kind).join("testdata")
}

#[test]
fn objects_that_others_are_tried_on_are_those_that_the_operator_writes() {
    let writes = std::env::var_os("INSTA_UPDATE").is_some_and(|it| it == "always");
    for (kind, objects) in [("PDDeployment", deployments()), ("PDPool", pools())] {
        let mut names = BTreeSet::new();
        for (name, object) in objects {
            let path = folder(kind).join(format!("{name}.json"));
            let object = sorted(serde_json::to_value(&object).unwrap());
            let text = format!("{}\n", serde_json::to_string_pretty(&object).unwrap());
            if writes {
                std::fs::write(&path, &text).unwrap();
            }
            let stored = std::fs::read_to_string(&path).unwrap_or_default();
            assert_eq!(
                stored,
                text,
                "{}: write it again with INSTA_UPDATE=always",
                path.display()
            );
            names.insert(path);
        }
        let entries = std::fs::read_dir(folder(kind)).unwrap();
        let files: BTreeSet<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        assert_eq!(files, names, "a file of no phase");
    }
}
