//! Facts about what this machine carries out.

use super::*;
use crate::controller::site::Site;
use pd_crds::document::parse;

fn mk_dereferenced(spec: &str, exists: bool) -> Dereferenced {
    let text = format!(
        "apiVersion: pdserve.io/v1alpha1\nkind: PDDeployment\nmetadata: {{name: tiny}}\nspec:\n{spec}"
    );
    let deployment = parse(&text).expect("a valid deployment");
    let host_model = deployment
        .spec
        .model
        .source
        .host_path
        .as_ref()
        .map(|source| HostModel {
            path: source.path.clone().into(),
            exists,
        });
    Dereferenced {
        deployment,
        host_model,
    }
}

fn refused(dereferenced: Dereferenced) -> String {
    for_this_machine(dereferenced)
        .expect_err("refused")
        .to_string()
}

const HERE: &str = "  model: {source: {hostPath: {path: /m.gguf}}}\n  pools: {}\n";

#[test]
fn a_model_on_this_machine_is_valid() {
    assert!(for_this_machine(mk_dereferenced(HERE, true)).is_ok());
}

#[test]
fn a_missing_model_is_named_with_what_to_do() {
    assert_eq!(
        refused(mk_dereferenced(HERE, false)),
        "spec.model.source.hostPath.path: no file or folder at /m.gguf; fetch the model (`make \
         model` for the example's) or correct the path, which is relative to the YAML's folder"
    );
}

#[test]
fn what_only_a_cluster_has_is_refused_by_path() {
    let spec = "  model: {source: {pvc: {claimName: models}}}
  engine: {kind: sglang, image: sglang, serviceAccountName: models}
  security: {peers: Plain}
  pools: {prefill: {minReplicas: 1, maxReplicas: 2}, decode: {minReplicas: 1, maxReplicas: 2}}
  router: {replicas: 2, apiKeys: {secretName: keys}, tls: {secretName: cert}, service: {type: NodePort}}
  imagePullSecrets: [{name: pull}]
";
    insta::assert_snapshot!(refused(mk_dereferenced(spec, true)), @r"
    spec.model.source: on this machine only hostPath and huggingFace are carried out; give one of them
    spec.router.replicas: on this machine one router serves, because it stands for the Service; set it to 1
    spec.router.apiKeys: there are no Secrets on this machine; remove it and set PDSERVE_API_KEY for pd-operator, which its processes inherit
    spec.router.service: there are no Services on this machine; remove it, and give `pd-operator local` the address by --listen
    spec.router.tls: there are no Secrets on this machine; remove it, or start pd-router yourself with --tls-cert-path and --tls-key-path
    spec.engine.serviceAccountName: there are no accounts on this machine; remove it
    spec.imagePullSecrets: no image is pulled on this machine; remove it
    ");
}

#[test]
fn what_the_engine_does_not_have_yet_is_refused_here_as_on_a_cluster() {
    let mut dereferenced = mk_dereferenced(HERE, true);
    dereferenced.deployment.spec.pools.decode.tp = 2;
    let expected = format!(
        "spec.pools.decode: {}",
        pd_crds::rules::engines::DECODE_RANKS.message
    );
    let config = mk_open(Site::default());
    let refused_there = for_a_cluster(&dereferenced.deployment, &config);
    assert_eq!(refused_there.unwrap_err().to_string(), expected);
    assert_eq!(refused(dereferenced), expected);
}

#[test]
fn rules_that_a_listen_port_could_break_are_checked_again() {
    let mut dereferenced = mk_dereferenced(HERE, true);
    dereferenced.deployment.spec.router.port = 0;
    assert_eq!(
        refused(dereferenced),
        "spec.router.port: 0 is below the least allowed, 1"
    );
}

/// A cluster where every folder may be a model's.
fn mk_open(site: Site) -> BuildConfig {
    BuildConfig {
        site: Site {
            host_paths: vec!["/".into()],
            ..site
        },
        ..BuildConfig::default()
    }
}

fn mk_bounded() -> BuildConfig {
    let site = Site {
        host_paths: vec!["/mnt/models".into(), "/srv".into()],
        service_accounts: vec!["models".to_owned()],
        kubernetes_minor: Some(34),
        ..Site::default()
    };
    BuildConfig {
        site,
        ..BuildConfig::default()
    }
}

fn on_a_cluster(spec: &str, config: &BuildConfig) -> String {
    let deployment = mk_dereferenced(spec, true).deployment;
    match for_a_cluster(&deployment, config) {
        Ok(_) => String::new(),
        Err(errors) => errors.to_string(),
    }
}

#[test]
fn what_a_cluster_cannot_carry_out_is_refused_by_path() {
    let relative = "  model: {source: {hostPath: {path: ../m.gguf}}}\n  pools: {}\n";
    insta::assert_snapshot!(on_a_cluster(relative, &mk_open(Site::default())), @r"spec.model.source.hostPath.path: ../m.gguf is relative, and a node has no folder that it could be relative to; give an absolute path, which each node must have");
    let image = "  model: {source: {image: {reference: r.example/m}}}\n  pools: {}\n";
    insta::assert_snapshot!(on_a_cluster(image, &mk_bounded()), @r"spec.model.source.image: image volumes are off in this Kubernetes 1.34, and on from 1.35; put the files on a volume and name that by pvc, or turn the feature gate ImageVolume on and say so to the operator: helm value overrides.imageVolumes");
    assert_eq!(on_a_cluster(image, &BuildConfig::default()), "");
}

#[test]
fn pods_share_memory_only_where_a_folder_of_their_node_is_open_to_them() {
    let with = |kv: &str| {
        format!("  model: {{source: {{pvc: {{claimName: m}}}}}}\n  pools: {{}}\n  kv: {{{kv}}}\n")
    };
    let closed = BuildConfig::default();
    insta::assert_snapshot!(on_a_cluster(&with("transport: shm"), &closed), @"spec.kv.transport: pods share no memory by themselves, so no KV would ever arrive; set nodeSharedMemory and keep both pools on one node, or set auto, tcp or rdma");
    insta::assert_snapshot!(on_a_cluster(&with("nodeSharedMemory: true"), &closed), @"spec.kv.nodeSharedMemory: pods of one node share memory through a folder of that node, and none is open to them here; leave it out, or have one opened: helm value sharedMemory.hostPath");
    let open = mk_open(Site {
        shared_memory: Some("/run/pdserve".into()),
        ..Site::default()
    });
    for kv in [
        "nodeSharedMemory: true",
        "nodeSharedMemory: true, transport: shm",
    ] {
        assert_eq!(on_a_cluster(&with(kv), &open), "");
    }
    // Processes of this machine share memory by themselves.
    let here = format!("{HERE}  kv: {{transport: shm}}\n");
    assert!(for_this_machine(mk_dereferenced(&here, true)).is_ok());
}

#[test]
fn what_is_not_everybodys_is_refused_until_it_is_opened() {
    let at = |path: &str| {
        format!("  model: {{source: {{hostPath: {{path: {path}}}}}}}\n  pools: {{}}\n")
    };
    insta::assert_snapshot!(on_a_cluster(&at("/m.gguf"), &BuildConfig::default()), @r"spec.model.source.hostPath.path: nodes' folders are not open to models here; use pvc or image, or have the folder opened: helm value overrides.hostPaths");
    insta::assert_snapshot!(on_a_cluster(&at("/srv/../etc/m.gguf"), &mk_bounded()), @r"spec.model.source.hostPath.path: /srv/../etc/m.gguf lies in no folder of the nodes that is open to models here (/mnt/models, /srv); use pvc or image, or have the folder opened: helm value overrides.hostPaths");
    assert_eq!(on_a_cluster(&at("/mnt/models/m.gguf"), &mk_bounded()), "");

    let account = |name: &str| {
        format!(
            "  model: {{source: {{pvc: {{claimName: m}}}}}}\n  engine: {{serviceAccountName: {name}}}\n  pools: {{}}\n"
        )
    };
    insta::assert_snapshot!(on_a_cluster(&account("admin"), &mk_bounded()), @r"spec.engine.serviceAccountName: workers may not run under the account admin; leave it out, or have it allowed: helm value overrides.serviceAccounts");
    assert_eq!(on_a_cluster(&account("models"), &mk_bounded()), "");

    let everything = BuildConfig {
        may_raise_privileges: true,
        ..BuildConfig::default()
    };
    assert_eq!(on_a_cluster(&at("/m.gguf"), &everything), "");
    assert_eq!(on_a_cluster(&account("admin"), &everything), "");
}
