//! Facts about files.

use super::*;

const MINIMAL: &str = "
apiVersion: pdserve.io/v1alpha1
kind: PDDeployment
metadata: {name: tiny}
spec:
  model: {source: {hostPath: {path: tiny.gguf}}}
  pools: {}
";

#[test]
fn defaults_are_filled_in() {
    let spec = parse(MINIMAL).unwrap().spec;
    assert_eq!(spec.pools.prefill.initial_replicas(), 1);
    assert_eq!(spec.kv.page_size, None);
    assert_eq!(spec.router.port, 8000);
    assert_eq!(spec.drain.timeout_seconds, 300);
}

#[test]
fn the_served_name_is_the_objects_unless_given() {
    let mut deployment = parse(MINIMAL).unwrap();
    assert_eq!(deployment.served_model_name(), "tiny");
    deployment.spec.model.served_model_name = Some("smol".to_owned());
    assert_eq!(deployment.served_model_name(), "smol");
}

#[test]
fn comments_and_separators_around_the_object_are_fine() {
    assert!(parse(&format!("# a comment\n---{MINIMAL}")).is_ok());
}

#[test]
fn another_kind_is_refused_by_name() {
    let error = parse("apiVersion: apps/v1\nkind: Deployment\n")
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "apiVersion: apps/v1 is not pdserve.io/v1alpha1\nkind: Deployment is not PDDeployment"
    );
}

#[test]
fn none_or_several_objects_are_refused() {
    assert!(matches!(parse(""), Err(DocumentError::Count(0))));
    let two = format!("{MINIMAL}---{MINIMAL}");
    assert!(matches!(parse(&two), Err(DocumentError::Count(2))));
}

#[test]
fn broken_yaml_is_refused_with_its_place() {
    let error = parse("spec: [1, 2\nkind: x").unwrap_err().to_string();
    assert!(
        error.starts_with("not valid YAML: ") && error.contains("line"),
        "{error}"
    );
}

#[test]
fn a_key_given_twice_is_refused() {
    let twice = format!("{MINIMAL}  pools: {{}}\n");
    assert!(matches!(parse(&twice), Err(DocumentError::Syntax(_))));
}

#[test]
fn examples_are_valid() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).expect("examples/ lies beside crds/") {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let parsed = parse(&text);
        assert!(
            parsed.is_ok(),
            "{}: {}",
            path.display(),
            parsed.unwrap_err()
        );
        names.push(parsed.unwrap().metadata.name.unwrap());
    }
    names.sort();
    assert_eq!(
        names,
        [
            "deepseek-v3",
            "qwen3-32b-sglang",
            "qwen3-32b-vllm",
            "qwen3-8b",
            "qwen3-autoscaled",
            "smollm2",
            "smollm2-https",
            "smollm2-sglang",
            "smollm2-vllm"
        ]
    );
}
