//! The rules of [`rules`](crate::rules) and of the schema, checked in Rust, so that a file is
//! refused on a machine without an apiserver for the same reasons and in the same words.

mod engines;

use crate::engine::{EngineArg, EngineKind, EngineSpec};
use crate::field::{FieldError, FieldErrors, FieldPath};
use crate::kv::KvTransport;
use crate::model::{ModelCache, ModelSource, ModelSpec, WeightsSpec};
use crate::pd_deployment::{PdDeployment, PdDeploymentSpec};
use crate::pool::{PoolSpec, PoolsSpec};
use crate::rollout::RolloutSpec;
use crate::router::{METRICS_PORT, RouterSpec};
use crate::rules::{self, CelRule};
use crate::scaling::{AutoscalingSpec, ScalingMode};
use crate::scheduling::{GangScheduling, SchedulingSpec};
use crate::schema_check;
use crate::service::{RouterServiceSpec, ServiceType};
use crate::tracing::TracingSpec;
use regex::Regex;
use std::sync::LazyLock;

/// Labels and annotations of the operator's own begin so.
const OWN_PREFIX: &str = "pdserve.io/";

/// Checks an object against its schema and against every rule.
///
/// # Errors
/// All that is wrong, each with the path of its field.
pub fn validate(deployment: &PdDeployment) -> Result<(), FieldErrors> {
    let document = serde_json::to_value(deployment).expect("a PDDeployment serializes to JSON");
    let mut errors = schema_check::check(&document);
    errors.extend(check_rules(deployment));
    FieldErrors::check(errors)
}

/// Checks the rules that tie fields together; bounds of single fields are the schema's.
pub fn check_rules(deployment: &PdDeployment) -> Vec<FieldError> {
    let PdDeployment {
        metadata,
        spec,
        status: _,
    } = deployment;
    let mut report = Report(Vec::new());
    let name = metadata.name.as_deref().unwrap_or_default();
    report.unless(is_name(name), &FieldPath::default(), rules::NAME);
    check_spec(spec, &mut report);
    report.0
}

fn check_spec(spec: &PdDeploymentSpec, report: &mut Report) {
    let path = FieldPath::new("spec");
    let PdDeploymentSpec {
        model:
            ModelSpec {
                source,
                served_model_name: _,
                weights,
            },
        engine,
        pools,
        kv,
        router,
        security: _,
        tracing,
        slo: _,
        autoscaling,
        rollout,
        scheduling,
        drain: _,
        image_pull_secrets: _,
        suspend: _,
    } = spec;
    check_source(source, &path.child("model").child("source"), report);
    if let Some(weights) = weights {
        check_weights(weights, source, &path.child("model"), report);
    }
    if let Some(TracingSpec {
        otlp_endpoint,
        sampling_rate_per_million: _,
    }) = tracing
    {
        let path = path.child("tracing").child("otlpEndpoint");
        report.unless(is_collector(otlp_endpoint), &path, rules::COLLECTOR);
    }
    check_engine(engine, &path.child("engine"), report);
    check_pool(
        &pools.prefill,
        &path.child("pools").child("prefill"),
        report,
    );
    check_pool(&pools.decode, &path.child("pools").child("decode"), report);
    let shares = matches!(kv.transport, KvTransport::Auto | KvTransport::Shm);
    let unshared = !kv.node_shared_memory || shares;
    report.unless(
        unshared,
        &path.child("kv"),
        rules::SHARING_NEEDS_SHARED_MEMORY,
    );
    check_router(router, &path.child("router"), report);
    check_scaling(autoscaling, pools, &path, report);
    check_rollout(rollout, &path.child("rollout"), report);
    let SchedulingSpec {
        gang,
        queue,
        release_after_seconds: _,
    } = scheduling;
    report.unless(
        queue.is_some() == (*gang == GangScheduling::Kueue),
        &path.child("scheduling"),
        rules::KUEUE_NEEDS_QUEUE,
    );
    engines::check(spec, &path, report);
}

fn check_router(router: &RouterSpec, path: &FieldPath, report: &mut Report) {
    let RouterSpec {
        replicas: _,
        port,
        api_keys,
        tls,
        image: _,
        policies: _,
        retries: _,
        limits: _,
        service,
        resources: _,
        pod_template: _,
    } = router;
    check_service(service, &path.child("service"), report);
    for (field, source) in [("apiKeys", api_keys), ("tls", tls)] {
        let is_named = source
            .as_ref()
            .is_none_or(|s| is_secret_name(&s.secret_name));
        report.unless(is_named, &path.child(field), rules::SECRET_NAME);
    }
    let is_shared = tls.is_some() && api_keys == tls;
    report.unless(!is_shared, path, rules::KEYS_ARE_NOT_THE_CERTIFICATE);
    let is_taken = tls.is_some() && *port == METRICS_PORT;
    report.unless(!is_taken, path, rules::METRICS_PORT_IS_FREE);
}

fn check_service(service: &RouterServiceSpec, path: &FieldPath, report: &mut Report) {
    let RouterServiceSpec {
        kind,
        load_balancer_class,
        annotations,
        labels,
    } = service;
    let balanced = load_balancer_class.is_none() || *kind == ServiceType::LoadBalancer;
    report.unless(balanced, path, rules::CLASS_NEEDS_LOAD_BALANCER);
    let mut names = labels.keys().chain(annotations.keys());
    let are_theirs = names.all(|name| !name.starts_with(OWN_PREFIX));
    report.unless(are_theirs, path, rules::SERVICE_NAMES_ARE_NOT_OURS);
}

fn check_rollout(rollout: &RolloutSpec, path: &FieldPath, report: &mut Report) {
    let RolloutSpec {
        max_surge,
        max_unavailable,
        paused: _,
        progress_deadline_seconds: _,
    } = rollout;
    let can_move = i64::from(*max_surge) + i64::from(*max_unavailable) > 0;
    report.unless(can_move, path, rules::ROLLOUT_CAN_MOVE);
}

fn check_weights(
    weights: &WeightsSpec,
    source: &ModelSource,
    model: &FieldPath,
    report: &mut Report,
) {
    let has_folder = source.host_path.is_some() || source.pvc.is_some();
    report.unless(has_folder, model, rules::WEIGHTS_LIE_IN_A_FOLDER);
    let mut parts = weights.path.split('/');
    report.unless(
        !parts.any(|part| part == "." || part == ".."),
        &model.child("weights"),
        rules::WEIGHTS_STAY_INSIDE,
    );
}

fn check_source(source: &ModelSource, path: &FieldPath, report: &mut Report) {
    let ModelSource {
        host_path,
        pvc,
        hugging_face,
        image,
    } = source;
    let given = [
        host_path.is_some(),
        pvc.is_some(),
        hugging_face.is_some(),
        image.is_some(),
    ];
    report.unless(
        given.iter().filter(|g| **g).count() == 1,
        path,
        rules::ONE_SOURCE,
    );
    let cache = hugging_face.as_ref().and_then(|it| it.cache.as_ref());
    if let Some(ModelCache { pvc, host_path }) = cache {
        report.unless(
            pvc.is_some() != host_path.is_some(),
            &path.child("huggingFace").child("cache"),
            rules::ONE_CACHE,
        );
    }
}

fn check_engine(engine: &EngineSpec, path: &FieldPath, report: &mut Report) {
    let EngineSpec {
        kind,
        image,
        command: _,
        service_account_name: _,
        args,
    } = engine;
    let has_image = *kind == EngineKind::Pdserve || image.is_some();
    report.unless(has_image, path, rules::OTHERS_NEED_IMAGE);
    check_args(args, &path.child("args"), report);
}

fn check_args(args: &[EngineArg], path: &FieldPath, report: &mut Report) {
    for (i, EngineArg { name, value: _ }) in args.iter().enumerate() {
        let path = path.index(i).child("name");
        report.unless(
            !rules::is_reserved_arg(name),
            &path,
            rules::ARG_NOT_RESERVED,
        );
        if args[..i].iter().any(|earlier| earlier.name == *name) {
            report
                .0
                .push(path.error(format!("{name} is given twice; each flag may appear once")));
        }
    }
}

fn check_pool(pool: &PoolSpec, path: &FieldPath, report: &mut Report) {
    let PoolSpec {
        replicas,
        min_replicas: min,
        max_replicas: max,
        tp: _,
        pp: _,
        dp: _,
        nodes,
        topology: _,
        args,
        resources: _,
        pod_template: _,
    } = pool;
    let one_way = replicas.is_none() || (min.is_none() && max.is_none());
    report.unless(one_way, path, rules::FIXED_OR_BOUNDS);
    report.unless(min.is_some() == max.is_some(), path, rules::BOUNDS_TOGETHER);
    let ordered = min.zip(*max).is_none_or(|(min, max)| min <= max);
    report.unless(ordered, path, rules::MIN_BELOW_MAX);
    let is_even = nodes.is_positive() && pool.ranks() % i64::from(*nodes) == 0;
    report.unless(is_even, path, rules::RANKS_FILL_NODES);
    check_args(args, &path.child("args"), report);
}

fn check_scaling(
    scaling: &AutoscalingSpec,
    pools: &PoolsSpec,
    path: &FieldPath,
    report: &mut Report,
) {
    let PoolsSpec { prefill, decode } = pools;
    let AutoscalingSpec {
        mode,
        budget,
        scale_up_window_seconds: _,
        scale_down_window_seconds: _,
    } = scaling;
    let empty = |pool: &PoolSpec| pool.replicas == Some(0);
    report.unless(
        empty(prefill) == empty(decode),
        path,
        rules::BOTH_POOLS_OR_NONE,
    );
    let bounded = prefill.max_replicas.is_some() && decode.max_replicas.is_some();
    let scales = matches!(mode, ScalingMode::Auto | ScalingMode::Advise);
    report.unless(!scales || bounded, path, rules::AUTOSCALING_NEEDS_BOUNDS);
    let least = least_gpus(prefill).saturating_add(least_gpus(decode));
    let covered = budget.max_gpus.is_none_or(|max| least <= i64::from(max));
    report.unless(covered, path, rules::BUDGET_COVERS_MINIMUM);
}

fn least_gpus(pool: &PoolSpec) -> i64 {
    i64::from(pool.initial_replicas()).saturating_mul(pool.gpus())
}

/// The regular expression of [`rules::NAME`].
fn is_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    let inner = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-';
    bytes.len() <= rules::NAME_LEN_MAX
        && bytes.iter().all(inner)
        && bytes.first().is_some_and(u8::is_ascii_lowercase)
        && bytes.last().is_some_and(|b| *b != b'-')
}

/// The regular expression of [`rules::SECRET_NAME`].
fn is_secret_name(name: &str) -> bool {
    let is_end = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = name.as_bytes();
    bytes.iter().all(|b| is_end(b) || matches!(b, b'-' | b'.'))
        && bytes.first().is_some_and(is_end)
        && bytes.last().is_some_and(is_end)
}

/// The regular expression of [`rules::COLLECTOR`].
fn is_collector(url: &str) -> bool {
    static COLLECTOR: LazyLock<Regex> = LazyLock::new(|| {
        let host = r"([a-zA-Z0-9._-]+|\[[a-fA-F0-9:.]+\])(:[0-9]{1,5})?";
        let pattern = format!("^http://{host}(/[a-zA-Z0-9._~/-]*)?$");
        Regex::new(&pattern).expect("it is a regular expression")
    });
    COLLECTOR.is_match(url)
}

struct Report(Vec<FieldError>);

// === impl Report ===

impl Report {
    fn unless(&mut self, holds: bool, path: &FieldPath, rule: CelRule) {
        if !holds {
            self.0.push(path.error(rule.message));
        }
    }
}

#[cfg(test)]
mod tests;
