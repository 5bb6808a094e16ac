//! The user's `podTemplate` over the operator's pod: maps merge, lists of named items merge by
//! name, other lists replace. Nothing the user wrote may get lost on the way.

use super::privileges::{raised, raised_by_annotation};
use k8s_openapi::api::core::v1::Pod;
use pd_crds::field::{FieldErrors, FieldPath};
use pd_crds::pool::PodTemplate;
use pd_protocol::labels;
use serde_json::{Value, json};

/// The field that names the items of a list, where Kubernetes merges that list.
fn merge_key(list: &str) -> Option<&'static str> {
    match list {
        "containers" | "initContainers" | "volumes" | "env" | "imagePullSecrets" => Some("name"),
        "volumeMounts" => Some("mountPath"),
        "ports" => Some("containerPort"),
        "topologySpreadConstraints" => Some("topologyKey"),
        _ => None,
    }
}

/// Merges a template over a pod; one that raises the pod's privileges only if `may_raise`.
pub(crate) fn merge_template(
    pod: &Pod,
    template: Option<&PodTemplate>,
    path: &FieldPath,
    may_raise: bool,
) -> Result<Pod, FieldErrors> {
    let Some(template) = template else {
        return Ok(pod.clone());
    };
    check_reserved(template, path)?;
    let PodTemplate { metadata, spec } = template;
    let overrides = json!({"metadata": metadata, "spec": spec});
    let mut merged = serde_json::to_value(pod).expect("a Pod serializes to JSON");
    merge(&mut merged, &overrides, "");
    let pod: Pod = serde_json::from_value(merged)
        .map_err(|error| path.error(format!("does not make a Pod: {error}")))?;
    let kept = serde_json::to_value(&pod).expect("a Pod serializes to JSON");
    let mut lost = Vec::new();
    find_lost(&overrides, &kept, "", path, &mut lost);
    let errors = lost
        .iter()
        .map(|path| path.error("is not a field of a Pod"))
        .collect();
    FieldErrors::check(errors)?;
    if !may_raise {
        let mut errors = raised(&overrides["spec"], &path.child("spec"));
        errors.extend(raised_by_annotation(
            &overrides["metadata"],
            &path.child("metadata"),
        ));
        FieldErrors::check(errors)?;
    }
    Ok(pod)
}

fn check_reserved(template: &PodTemplate, path: &FieldPath) -> Result<(), FieldErrors> {
    let mut errors = Vec::new();
    let metadata = template.metadata.as_ref().and_then(Value::as_object);
    for (field, value) in metadata.into_iter().flatten() {
        let path = path.child("metadata").child(field);
        if field != "labels" && field != "annotations" {
            errors.push(path.error("only labels and annotations can be added"));
        }
        for name in value
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, _)| name)
        {
            if name.split('/').next() == Some(labels::GROUP) {
                errors.push(
                    path.child(name)
                        .error("names below pdserve.io/ are the operator's"),
                );
            }
        }
    }
    FieldErrors::check(errors)
}

fn merge(base: &mut Value, over: &Value, field: &str) {
    match (base, over) {
        (_, Value::Null) => {}
        (Value::Object(base), Value::Object(over)) => {
            for (name, value) in over {
                merge(base.entry(name).or_insert(Value::Null), value, name);
            }
        }
        (Value::Array(base), Value::Array(over)) if merge_key(field).is_some() => {
            let key = merge_key(field).unwrap_or_default();
            for item in over {
                match base.iter_mut().find(|have| have[key] == item[key]) {
                    Some(have) => merge(have, item, ""),
                    None => base.push(item.clone()),
                }
            }
        }
        (base, over) => *base = over.clone(),
    }
}

/// Collects the paths of what the user wrote and the typed Pod does not hold.
fn find_lost(over: &Value, kept: &Value, field: &str, path: &FieldPath, lost: &mut Vec<FieldPath>) {
    match over {
        Value::Object(fields) => {
            for (name, value) in fields {
                find_lost(value, &kept[name.as_str()], name, &path.child(name), lost);
            }
        }
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                let key = merge_key(field);
                let same = |have: &&Value| key.is_some_and(|key| have[key] == item[key]);
                let found = kept.as_array().and_then(|kept| kept.iter().find(same));
                let kept = found.unwrap_or(&kept[i]);
                find_lost(item, kept, "", &path.index(i), lost);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            if !over.is_null() && kept.is_null() {
                lost.push(path.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests;
