//! The rules of [`rules::engines`](crate::rules::engines): what the chosen engine cannot do.

use super::Report;
use crate::engine::{EngineArg, EngineKind};
use crate::field::FieldPath;
use crate::kv::{KvDtype, KvTransport};
use crate::pd_deployment::PdDeploymentSpec;
use crate::pool::{GPU, PoolSpec};
use crate::rules::CelRule;
use crate::rules::engines as rules;
use crate::security::{PeerTrust, SecuritySpec};

pub(super) fn check(spec: &PdDeploymentSpec, path: &FieldPath, report: &mut Report) {
    let pools = &spec.pools;
    for (pool, name, rule) in [
        (&pools.prefill, "prefill", rules::PREFILL_GPUS),
        (&pools.decode, "decode", rules::DECODE_GPUS),
    ] {
        let ranks = pool.ranks_under(&spec.engine.args) / i64::from(pool.nodes.max(1));
        let limit = pool.limit(GPU).map(|limit| limit.0.as_str());
        let each_has_one = limit.is_none_or(|limit| limit == "0" || limit == ranks.to_string());
        let path = path.child("pools").child(name);
        let at = path.child("resources").child("limits").child(GPU);
        report.unless(each_has_one, &at, rule);
    }
    match spec.engine.kind {
        EngineKind::Pdserve => check_pdserve(spec, path, report),
        EngineKind::Sglang => {
            check_sglang(spec, path, report);
            check_other(spec, path, report);
        }
        EngineKind::Vllm => {
            check_vllm(spec, path, report);
            check_other(spec, path, report);
        }
    }
}

fn check_pdserve(spec: &PdDeploymentSpec, path: &FieldPath, report: &mut Report) {
    let (pools, kv) = (&spec.pools, &spec.kv);
    let args = [&spec.engine.args, &pools.prefill.args, &pools.decode.args];
    let names_weights = args
        .into_iter()
        .flatten()
        .any(|arg| arg.name == "weight-version");
    report.unless(
        spec.model.weights.is_none() || !names_weights,
        &path.child("model").child("weights"),
        rules::WEIGHTS_NAME_THEIR_VERSION,
    );
    for (pool, name, rule) in [
        (&pools.prefill, "prefill", rules::PREFILL_RANKS),
        (&pools.decode, "decode", rules::DECODE_RANKS),
    ] {
        let path = path.child("pools").child(name);
        check_pool(pool, &path, rule, report);
    }
    check_dtype(
        &spec.engine.args,
        &path.child("engine").child("args"),
        report,
    );
    let at = path.child("kv");
    let dtype = matches!(
        kv.dtype,
        KvDtype::Auto | KvDtype::Float32 | KvDtype::Bfloat16 | KvDtype::Fp8E4m3
    );
    report.unless(dtype, &at.child("dtype"), rules::PDSERVE_KV_DTYPE);
    report.unless(
        kv.page_size
            .is_none_or(|tokens| tokens <= rules::PDSERVE_PAGE_MAX),
        &at.child("pageSize"),
        rules::PDSERVE_PAGE,
    );
}

fn check_pool(pool: &PoolSpec, path: &FieldPath, ranks: CelRule, report: &mut Report) {
    let sizes = [pool.tp, pool.pp, pool.dp, pool.nodes];
    let one = sizes.iter().all(|size| *size <= 1);
    report.unless(one, path, ranks);
    check_dtype(&pool.args, &path.child("args"), report);
}

fn check_dtype(args: &[EngineArg], path: &FieldPath, report: &mut Report) {
    for (i, EngineArg { name, value }) in args.iter().enumerate() {
        let known = value
            .as_deref()
            .is_some_and(|value| rules::PDSERVE_DTYPES.contains(&value));
        let path = path.index(i).child("value");
        report.unless(name != "dtype" || known, &path, rules::PDSERVE_DTYPE);
    }
}

fn check_sglang(spec: &PdDeploymentSpec, path: &FieldPath, report: &mut Report) {
    let at = path.child("kv");
    let transport = match spec.kv.transport {
        KvTransport::Auto
        | KvTransport::Mooncake
        | KvTransport::Nixl
        | KvTransport::Ascend
        | KvTransport::Mori => true,
        KvTransport::Shm | KvTransport::Tcp | KvTransport::Rdma => false,
    };
    report.unless(transport, &at.child("transport"), rules::SGLANG_TRANSPORT);
    let dtype = !matches!(spec.kv.dtype, KvDtype::Float32 | KvDtype::Float16);
    report.unless(dtype, &at.child("dtype"), rules::SGLANG_KV_DTYPE);
}

fn check_vllm(spec: &PdDeploymentSpec, path: &FieldPath, report: &mut Report) {
    let at = path.child("kv");
    let transport = matches!(spec.kv.transport, KvTransport::Auto | KvTransport::Nixl);
    report.unless(transport, &at.child("transport"), rules::VLLM_TRANSPORT);
    let dtype = spec.kv.dtype != KvDtype::Float32;
    report.unless(dtype, &at.child("dtype"), rules::VLLM_KV_DTYPE);
    for (name, pool, rule) in [
        ("prefill", &spec.pools.prefill, rules::VLLM_PREFILL_NODES),
        ("decode", &spec.pools.decode, rules::VLLM_DECODE_NODES),
    ] {
        report.unless(pool.nodes <= 1, &path.child("pools").child(name), rule);
    }
}

/// What no engine but ours can do.
fn check_other(spec: &PdDeploymentSpec, path: &FieldPath, report: &mut Report) {
    report.unless(
        !spec.kv.node_shared_memory,
        &path.child("kv").child("nodeSharedMemory"),
        rules::OTHERS_SHARE_NO_MEMORY,
    );
    let SecuritySpec { peers } = &spec.security;
    report.unless(
        *peers == PeerTrust::Plain,
        &path.child("security").child("peers"),
        rules::OTHERS_ARE_PLAIN,
    );
    report.unless(
        spec.model.weights.is_none(),
        &path.child("model").child("weights"),
        rules::OTHERS_KEEP_WEIGHTS,
    );
}
