//! Records of revisions: the parts of a spec that pods are made of, as the user wrote them. The
//! operator keeps them as the data of `ControllerRevision`s, to be gone back to.

use crate::pd_deployment::{PdDeployment, PdDeploymentSpec};
use crate::pool::PoolSpec;
use crate::status::ModelStatus;
use serde_json::{Value, json};

/// Fields of a pool that change its size, and are in no revision.
const SIZES: [&str; 3] = ["replicas", "minReplicas", "maxReplicas"];

/// The part that is recorded only where there is something.
const PULL_SECRETS: &str = "imagePullSecrets";

/// What of `spec` a revision is made of.
pub fn recorded(spec: &PdDeploymentSpec) -> Value {
    let pool = |pool: &PoolSpec| {
        let mut pool = json!(pool);
        if let Some(fields) = pool.as_object_mut() {
            fields.retain(|name, _| !SIZES.contains(&name.as_str()));
        }
        pool
    };
    let mut parts = json!({
        "model": spec.model,
        "engine": spec.engine,
        "kv": spec.kv,
        "pools": {"prefill": pool(&spec.pools.prefill), "decode": pool(&spec.pools.decode)},
    });
    if !spec.image_pull_secrets.is_empty() {
        parts[PULL_SECRETS] = json!(spec.image_pull_secrets);
    }
    json!({"spec": parts})
}

/// A spec as it is carried out: a branch of a model's repository is the commit that it was resolved to.
pub fn resolved(deployment: &PdDeployment) -> PdDeploymentSpec {
    let mut spec = deployment.spec.clone();
    let status = deployment.status.as_ref();
    let model = status.and_then(|status| status.model.as_ref());
    if let (Some(source), Some(model)) = (&mut spec.model.source.hugging_face, model)
        && model.is_resolved()
        && model.is_of_source(&ModelStatus::of(source))
    {
        source.revision = Some(model.commit.clone());
    }
    spec
}

/// `spec` with the recorded parts in place of its own; sizes and all else stay. Nothing if `record`
/// is none. Both are JSON, so that fields which this program does not know stay, too.
pub fn restored(spec: &Value, record: &Value) -> Option<Value> {
    let recorded = record.get("spec")?;
    let pool = |role: &str| {
        let mut pool = recorded.get("pools")?.get(role)?.as_object()?.clone();
        let own = |size: &str| Some((size.to_owned(), spec["pools"][role].get(size)?.clone()));
        pool.extend(SIZES.into_iter().filter_map(own));
        Some(Value::Object(pool))
    };
    let mut restored = spec.as_object()?.clone();
    for part in ["model", "engine", "kv"] {
        restored.insert(part.to_owned(), recorded.get(part)?.clone());
    }
    match recorded.get(PULL_SECRETS) {
        Some(secrets) => restored.insert(PULL_SECRETS.to_owned(), secrets.clone()),
        None => restored.remove(PULL_SECRETS),
    };
    let pools = json!({"prefill": pool("prefill")?, "decode": pool("decode")?});
    restored.insert("pools".to_owned(), pools);
    Some(Value::Object(restored))
}

#[cfg(test)]
mod tests;
