//! Facts about the examples, as a cluster would get them.

use super::*;
use crate::controller::site::Site;
use serde_json::Value;
use std::collections::BTreeSet;

fn mk_config() -> BuildConfig {
    BuildConfig {
        image: "pdserve:test".to_owned(),
        discovery: true,
        site: Site {
            host_paths: vec!["/".into()],
            ..Site::default()
        },
        ..BuildConfig::default()
    }
}

fn examples() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let entries = std::fs::read_dir(folder).expect("examples/ lies beside operator/");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn objects(example: &Path) -> Vec<Value> {
    let text = render(example, "ml", &mk_config());
    let text = text.unwrap_or_else(|error| panic!("{error}"));
    serde_saphyr::from_multiple(&text).expect("what was written reads back")
}

/// Containers of a Pod or of a Deployment's template.
fn containers(object: &Value) -> Vec<Value> {
    ["/spec/containers", "/spec/template/spec/containers"]
        .into_iter()
        .filter_map(|at| object.pointer(at)?.as_array().cloned())
        .flatten()
        .collect()
}

fn texts(list: &Value) -> Vec<String> {
    let items = list.as_array().into_iter().flatten();
    items
        .map(|item| item.as_str().expect("a text").to_owned())
        .collect()
}

#[test]
fn every_example_is_rendered_with_all_its_kinds() {
    for example in examples() {
        let objects = objects(&example);
        let kinds: Vec<&str> = objects
            .iter()
            .filter_map(|object| object["kind"].as_str())
            .collect();
        let wanted = [
            "ServiceAccount",
            "RoleBinding",
            "Service",
            "Deployment",
            "PDPool",
            "Pod",
            "PDPool",
            "Pod",
        ];
        let mut rest = kinds.clone();
        rest.retain(|kind| *kind != "PodDisruptionBudget");
        // One more where replicas span nodes, by which they meet.
        rest.dedup();
        assert_eq!(rest, wanted, "{example:?}");
        for object in &objects {
            assert!(object["apiVersion"].is_string(), "{object}");
            assert_eq!(object["metadata"]["namespace"], "ml", "{object}");
        }
    }
}

/// clap, and argparse where it counts, refuse or overrule a flag that is given twice.
#[test]
fn no_example_gives_a_flag_twice() {
    for example in examples() {
        for container in objects(&example).iter().flat_map(containers) {
            let args = texts(&container["args"]);
            let mut flags = BTreeSet::new();
            for flag in args.iter().filter(|arg| arg.starts_with("--")) {
                let repeated = flag.ends_with("-selector");
                assert!(
                    repeated || flags.insert(flag),
                    "{example:?}: {flag} in {args:?}"
                );
            }
        }
    }
}

#[test]
fn a_gpu_example_asks_for_what_one_rank_of_ours_uses() {
    for example in ["qwen3-2p2d", "qwen3-autoscaled"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
        let objects = objects(&folder.join(format!("{example}.yaml")));
        let pods: Vec<&Value> = objects.iter().filter(|it| it["kind"] == "Pod").collect();
        assert_eq!(pods.len(), 2, "{example}");
        for pod in pods {
            let agent = &pod["spec"]["containers"][0];
            let args = texts(&agent["args"]);
            assert_eq!(agent["command"][0], "pd-agent", "{example}");
            assert!(
                args.windows(2).any(|it| it == ["--device", "cuda"]),
                "{args:?}"
            );
            assert!(!args.iter().any(|arg| arg == "--tp-size"), "{args:?}");
            assert_eq!(agent["resources"]["limits"]["nvidia.com/gpu"], "1");
        }
    }
}

#[test]
fn what_a_cluster_would_refuse_is_not_rendered() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let example = folder.join("smollm2.yaml");
    let config = BuildConfig {
        site: Site::default(),
        ..mk_config()
    };
    let error = render(&example, "ml", &config).unwrap_err().to_string();
    assert!(
        error.contains("spec.model.source.hostPath.path: nodes' folders are not open"),
        "{error}"
    );
}
