//! Facts about what this machine carries out.

use super::*;
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
  engine: {kind: sglang, image: sglang}
  pools: {prefill: {minReplicas: 1, maxReplicas: 2}, decode: {minReplicas: 1, maxReplicas: 2}}
  router: {replicas: 2, apiKeys: {secretName: keys}, tls: {secretName: cert}}
";
    insta::assert_snapshot!(refused(mk_dereferenced(spec, true)), @r"
    spec.model.source: on this machine only hostPath is carried out; fetch the model and give its path
    spec.engine.kind: on this machine only pdserve is carried out
    spec.router.replicas: on this machine one router serves, because it stands for the Service; set it to 1
    spec.router.apiKeys: there are no Secrets on this machine; remove it and set PDSERVE_API_KEY for pd-operator, which its processes inherit
    spec.router.tls: there are no Secrets on this machine; remove it, or start pd-router yourself with --tls-cert-path and --tls-key-path
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
    let refused_there = for_a_cluster(&dereferenced.deployment);
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

#[test]
fn what_a_cluster_cannot_carry_out_is_refused_by_path() {
    let spec = "  model: {source: {hostPath: {path: ../m.gguf}}}
  pools: {}
";
    let deployment = mk_dereferenced(spec, true).deployment;
    let refused = for_a_cluster(&deployment).expect_err("refused").to_string();
    insta::assert_snapshot!(refused, @r"
    spec.model.source.hostPath.path: ../m.gguf is relative, and a node has no folder that it could be relative to; give an absolute path, which each node must have
    ");
}
