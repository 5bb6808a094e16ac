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

/// Flags that a worker of `kind` is given if the spec says much.
fn flags(kind: EngineKind, edit: fn(&mut PdDeployment)) -> Vec<String> {
    let mut deployment = mk_example("qwen3-2p2d");
    let spec = &mut deployment.spec;
    spec.engine.kind = kind;
    spec.engine.args.clear();
    spec.kv = KvSpec {
        page_size: Some(64),
        dtype: KvDtype::Fp8E4m3,
        transport: KvTransport::Nixl,
        node_shared_memory: false,
    };
    let pool = &mut spec.pools.prefill;
    (pool.tp, pool.pp, pool.dp) = (8, 2, 2);
    pool.args.clear();
    edit(&mut deployment);
    let pool = pool::build_pool(&deployment, PoolRole::Prefill, &mk_config()).unwrap();
    let pod = pool.pod(SLOT, WorkerPorts::block(21000)).spec.unwrap();
    let args = pod.containers[0].args.clone().unwrap();
    args.into_iter()
        .filter(|arg| arg.starts_with("--"))
        .collect()
}

#[test]
fn what_a_worker_is_given_are_options_of_each_version() {
    let several: fn(&mut PdDeployment) = |it| it.spec.pools.prefill.nodes = 2;
    let sglang = (
        EngineKind::Sglang,
        several,
        15,
        ["0.5.5", "0.5.12", "0.5.23"],
    );
    let vllm: fn(&mut PdDeployment) = |_| {};
    let vllm = (EngineKind::Vllm, vllm, 10, ["0.20.2", "0.27.1", "0.32.0"]);
    for (kind, edit, at_least, versions) in [sglang, vllm] {
        let given = flags(kind, edit);
        assert!(given.len() > at_least, "{given:?}");
        let engine = serde_json::to_value(kind).unwrap();
        for version in versions {
            let name = format!("{}-{version}.txt", engine.as_str().unwrap());
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../crds/golden/options");
            let options = std::fs::read_to_string(format!("{folder}/{name}")).unwrap();
            let names: Vec<&str> = options.split_whitespace().collect();
            for flag in &given {
                assert!(names.contains(&flag.as_str()), "{flag} is none of {name}");
            }
        }
    }
}

#[test]
fn a_vllm_worker_has_what_its_image_needs() {
    let mut deployment = mk_example("qwen3-2p2d");
    deployment.spec.engine.kind = EngineKind::Vllm;
    deployment.spec.engine.image = Some("vllm/vllm-openai:v0.32.0".to_owned());
    deployment.spec.security.peers = PeerTrust::Plain;
    deployment.spec.kv = KvSpec::default();
    let config = BuildConfig {
        discovery: true,
        ..mk_config()
    };
    let pool = pool::build_pool(&deployment, PoolRole::Prefill, &config).unwrap();
    insta::assert_yaml_snapshot!("vllm-prefill", pool.pod(SLOT, WorkerPorts::WELL_KNOWN));

    let pool = pool::build_pool(&deployment, PoolRole::Decode, &config).unwrap();
    let pod = pool.pod(SLOT, WorkerPorts::block(21000));
    assert_eq!(pod.annotations().get(labels::BOOTSTRAP_PORT), None);
    let agent = &pod.spec.unwrap().containers[0];
    let args = agent.args.as_ref().unwrap();
    let config = args
        .iter()
        .skip_while(|arg| *arg != "--kv-transfer-config")
        .nth(1);
    assert!(config.unwrap().contains("kv_consumer"), "{args:?}");
    let mut env = agent.env.iter().flatten();
    let port = env
        .find(|env| env.name == "VLLM_NIXL_SIDE_CHANNEL_PORT")
        .unwrap();
    assert_eq!(port.value.as_deref(), Some("21002"));
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
