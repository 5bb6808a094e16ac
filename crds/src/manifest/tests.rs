//! Facts about the generated files.

use super::*;
use std::path::Path;

#[test]
fn committed_yaml_is_what_the_types_generate() {
    for Manifest {
        file_name, yaml, ..
    } in manifests()
    {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("yaml")
            .join(&file_name);
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(
            committed, yaml,
            "yaml/{file_name} is out of date; run `make generate`"
        );
    }
}

#[test]
fn yaml_reads_back_as_the_crd_it_was_made_from() {
    let yaml = &manifests()[0].yaml;
    let back: CustomResourceDefinition = serde_saphyr::from_str(yaml).unwrap();
    assert_eq!(back, unseen_at_first(PdDeployment::crd()));
}

#[test]
fn a_new_object_has_not_been_observed() {
    for crd in [PdDeployment::crd(), PdPool::crd()].map(unseen_at_first) {
        let crd = serde_json::to_value(crd).unwrap();
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let status = &schema["properties"]["status"]["default"];
        assert_eq!(status["observedGeneration"], UNSEEN);
    }
}

/// Calls `visit` with every schema node and its path.
fn walk(schema: &Value, path: &str, visit: &mut dyn FnMut(&Value, &str)) {
    visit(schema, path);
    for (name, child) in schema["properties"].as_object().into_iter().flatten() {
        walk(child, &format!("{path}.{name}"), visit);
    }
    for branch in ["items", "additionalProperties"] {
        if schema[branch].is_object() {
            walk(&schema[branch], &format!("{path}.{branch}"), visit);
        }
    }
}

/// Rules are costed by the largest value that they could meet.
#[test]
fn every_list_and_string_of_our_own_is_bounded() {
    let schema = open_api_schema();
    let mut unbounded = Vec::new();
    walk(&schema["properties"]["spec"], "spec", &mut |node, path| {
        if path.contains(".resources.") {
            return;
        }
        let bound = match node["type"].as_str() {
            Some("array") => "maxItems",
            Some("string") if node["enum"].is_null() => "maxLength",
            _ => return,
        };
        if node[bound].is_null() {
            unbounded.push(format!("{path} has no {bound}"));
        }
    });
    assert_eq!(unbounded, Vec::<String>::new());
}

#[test]
fn every_pattern_compiles() {
    walk(&open_api_schema(), "", &mut |node, path| {
        if let Some(pattern) = node["pattern"].as_str() {
            assert!(regex::Regex::new(pattern).is_ok(), "{path}: {pattern}");
        }
    });
}

#[test]
fn every_field_is_described() {
    let mut silent = Vec::new();
    for part in ["spec", "status"] {
        let schema = &open_api_schema()["properties"][part];
        walk(schema, part, &mut |node, path| {
            let ours = !path.contains(".resources.") && !path.ends_with(".items");
            let whole = path == "status";
            if ours && !whole && node["description"].is_null() {
                silent.push(path.to_owned());
            }
        });
    }
    assert_eq!(silent, Vec::<String>::new());
}
