//! Workers of engines other than ours.

use super::*;
use pd_crds::engine::EngineKind;
use pd_crds::kv::{KvDtype, KvSpec, KvTransport};
use pd_crds::security::PeerTrust;

#[test]
fn sglang_is_started_by_its_own_words() {
    let mut deployment = mk_example("qwen3-2p2d");
    deployment.spec.engine.kind = EngineKind::Sglang;
    deployment.spec.engine.image = Some("lmsysorg/sglang:v0.5".to_owned());
    deployment.spec.kv.transport = KvTransport::Mooncake;
    let pool = pool::build_pool(&deployment, PoolRole::Decode, &mk_config()).unwrap();
    let container = pool
        .pod(SLOT, WorkerPorts::WELL_KNOWN)
        .spec
        .unwrap()
        .containers
        .remove(0);
    assert_eq!(
        container.command.unwrap(),
        ["python3", "-m", "sglang.launch_server"]
    );
    let args = container.args.unwrap();
    assert!(
        args.windows(2)
            .any(|pair| pair == ["--disaggregation-transfer-backend", "mooncake"])
    );
    assert!(!args.contains(&"--admin-port".to_owned()));
}

#[test]
fn an_sglang_worker_has_what_its_image_needs() {
    let mut deployment = mk_example("qwen3-2p2d");
    deployment.spec.engine.kind = EngineKind::Sglang;
    deployment.spec.engine.image = Some("lmsysorg/sglang:v0.5".to_owned());
    deployment.spec.security.peers = PeerTrust::Plain;
    deployment.spec.kv = KvSpec::default();
    let config = BuildConfig {
        discovery: true,
        ..mk_config()
    };
    let pool = pool::build_pool(&deployment, PoolRole::Prefill, &config).unwrap();
    insta::assert_yaml_snapshot!("sglang-prefill", pool.pod(SLOT, WorkerPorts::WELL_KNOWN));
}

#[test]
fn what_an_sglang_worker_is_given_are_options_of_each_version() {
    let mut deployment = mk_example("qwen3-2p2d");
    let spec = &mut deployment.spec;
    spec.engine.kind = EngineKind::Sglang;
    spec.engine.args.clear();
    spec.kv = KvSpec {
        page_size: Some(64),
        dtype: KvDtype::Fp8E4m3,
        transport: KvTransport::Nixl,
        node_shared_memory: false,
    };
    let pool = &mut spec.pools.prefill;
    (pool.tp, pool.pp, pool.dp, pool.nodes) = (8, 2, 2, 2);
    let pool = pool::build_pool(&deployment, PoolRole::Prefill, &mk_config()).unwrap();
    let pod = pool.pod(SLOT, WorkerPorts::block(21000)).spec.unwrap();
    let args = pod.containers[0].args.clone().unwrap();
    let given: Vec<&String> = args.iter().filter(|arg| arg.starts_with("--")).collect();
    assert!(given.len() > 15, "{given:?}");
    for version in ["0.5.5", "0.5.12", "0.5.23"] {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../crds/golden/options");
        let options = std::fs::read_to_string(format!("{folder}/sglang-{version}.txt")).unwrap();
        let names: Vec<&str> = options.split_whitespace().collect();
        for flag in &given {
            assert!(
                names.contains(&flag.as_str()),
                "{flag} is none of {version}"
            );
        }
    }
}

#[test]
fn kv_of_an_engine_that_does_not_say_what_it_means_is_that_of_its_spec() {
    let compat = |edit: fn(&mut PdDeployment)| {
        let mut deployment = mk_example("qwen3-2p2d");
        deployment.spec.engine.kind = EngineKind::Sglang;
        edit(&mut deployment);
        [PoolRole::Prefill, PoolRole::Decode].map(|role| {
            let pool = pool::build_pool(&deployment, role, &mk_config()).unwrap();
            let pod = pool.pod(SLOT, WorkerPorts::WELL_KNOWN);
            pod.annotations().get(labels::KV_COMPAT).cloned()
        })
    };
    let [prefill, decode] = compat(|_| {});
    assert!(prefill.is_some());
    assert_eq!(prefill, decode);
    let of_pool: fn(&mut PdDeployment) = |it| it.spec.pools.decode.tp = 2;
    assert_eq!(compat(of_pool), [prefill.clone(), decode]);
    let edits: [fn(&mut PdDeployment); 3] = [
        |it| it.spec.kv.page_size = Some(32),
        |it| it.spec.engine.image = Some("lmsysorg/sglang:v0.6".to_owned()),
        |it| it.spec.model.served_model_name = Some("another".to_owned()),
    ];
    for edit in edits {
        assert_ne!(compat(edit)[0], prefill);
    }
    let ours: fn(&mut PdDeployment) = |it| it.spec.engine.kind = EngineKind::Pdserve;
    assert_eq!(compat(ours), [None, None]);
}
