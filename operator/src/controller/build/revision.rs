//! Revisions: what of the user's spec a pod was built from.
//!
//! A revision hashes the spec as the user wrote it, never what the operator made of it, so a newer
//! operator replaces no running pod. Replica counts, suspension, scaling, goals, rollout and drain
//! are left out: they change a pool's size or its handling, not its pods; and so is who gives them nodes.

use super::component::Component;
use super::engines;
use pd_crds::PdDeploymentSpec;
use pd_crds::json_order::sorted;
use pd_crds::model::{HuggingFaceSource, ModelSpec};
use pd_crds::pool::{PoolSpec, PoolsSpec};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Hexadecimal digits of a revision: enough for the last dozens of one deployment.
const DIGITS: usize = 10;

/// Revision of a component's pods.
pub(crate) fn revision(spec: &PdDeploymentSpec, component: Component) -> String {
    let PdDeploymentSpec {
        model,
        engine,
        pools: PoolsSpec { prefill, decode },
        kv,
        router,
        security,
        tracing,
        slo: _,
        autoscaling: _,
        rollout: _,
        scheduling: _,
        drain: _,
        image_pull_secrets,
        suspend: _,
    } = spec;
    let mut inputs = match component {
        Component::Prefill => json!([read(model), engine, kv, shape(prefill)]),
        Component::Decode => json!([read(model), engine, kv, shape(decode)]),
        Component::Router => {
            let mut router = json!(router);
            if let Some(fields) = router.as_object_mut() {
                // Neither the number of pods nor the Service is part of a pod.
                fields.remove("replicas");
                fields.remove("service");
            }
            router
        }
    };
    // Revisions from before they could be given are those of none.
    if !image_pull_secrets.is_empty() {
        inputs = json!([inputs, image_pull_secrets]);
    }
    // Revisions from before peers were authenticated are those of plain ones.
    if spec.authenticates_peers() {
        inputs = json!([inputs, security]);
    }
    // And revisions from before spans were sent are those of none.
    let sends_spans = component == Component::Router || engines::of(engine.kind).sends_spans;
    if let Some(tracing) = tracing.as_ref().filter(|_| sends_spans) {
        inputs = json!([inputs, tracing]);
    }
    digest(&inputs)
}

/// What KV means to workers of this spec, both pools' the same: revisions that differ in it must not be paired.
pub(super) fn kv_compat(spec: &PdDeploymentSpec) -> String {
    digest(&json!([read(&spec.model), spec.engine, spec.kv]))
}

/// Revision of both pools together: what a rollout moves between.
pub(crate) fn of_pools(spec: &PdDeploymentSpec) -> String {
    digest(&json!([
        revision(spec, Component::Prefill),
        revision(spec, Component::Decode)
    ]))
}

/// A pod that fetches a model from this source.
pub(super) fn of_fetch(source: &HuggingFaceSource) -> String {
    digest(&json!(source))
}

/// What of a model pods read: not how it was fetched, and of weights that workers change while they run, that there are some.
fn read(model: &ModelSpec) -> Value {
    let mut read = json!(model);
    if let Some(weights) = read.get_mut("weights") {
        *weights = json!({});
    }
    let source = read.pointer_mut("/source/huggingFace");
    if let Some(source) = source.and_then(Value::as_object_mut) {
        source.remove("tokenSecretRef");
        source.remove("endpoint");
        let claim = source.get_mut("cache").and_then(|it| it.get_mut("pvc"));
        if let Some(claim) = claim.and_then(Value::as_object_mut) {
            claim.remove("removeUnusedAfterDays");
        }
    }
    read
}

fn shape(pool: &PoolSpec) -> Value {
    let PoolSpec {
        replicas: _,
        min_replicas: _,
        max_replicas: _,
        tp,
        pp,
        dp,
        nodes,
        topology,
        args,
        resources,
        pod_template,
    } = pool;
    let mut shape = json!([tp, pp, dp, args, resources, pod_template]);
    // Revisions from before there were several are those of one.
    if let (Some(shape), 2..) = (shape.as_array_mut(), nodes) {
        shape.push(json!(nodes));
    }
    if let (Some(shape), Some(topology)) = (shape.as_array_mut(), topology) {
        shape.push(json!(topology));
    }
    shape
}

fn digest(inputs: &Value) -> String {
    let digest = Sha256::digest(sorted(inputs.clone()).to_string());
    let mut hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    hex.truncate(DIGITS);
    hex
}
