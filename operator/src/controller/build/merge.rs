//! The user's `podTemplate` over the operator's pod, merged by Kubernetes' own patch keys: maps merge, lists with a
//! key (containers by name, mounts by path, ports by number) merge by it, other lists replace. Nothing the user wrote may get lost on the way.

use super::privileges::{raised, raised_by_annotation};
use k8s_openapi::DeepMerge;
use k8s_openapi::api::core::v1::Pod;
use pd_crds::field::{FieldError, FieldErrors, FieldPath};
use pd_crds::json_order::by_name;
use pd_crds::pool::PodTemplate;
use pd_protocol::labels;
use serde_json::{Value, json};

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
    let typed: Pod = serde_json::from_value(overrides.clone())
        .map_err(|error| path.error(format!("does not make a Pod: {error}")))?;
    let kept = serde_json::to_value(&typed).expect("a Pod serializes to JSON");
    let mut errors = Vec::new();
    compare(&overrides, &kept, path, &mut errors);
    FieldErrors::check(errors)?;
    if !may_raise {
        let mut errors = raised(&overrides["spec"], &path.child("spec"));
        errors.extend(raised_by_annotation(
            &overrides["metadata"],
            &path.child("metadata"),
        ));
        FieldErrors::check(errors)?;
    }
    let mut merged = pod.clone();
    merged.merge_from(typed);
    Ok(merged)
}

fn check_reserved(template: &PodTemplate, path: &FieldPath) -> Result<(), FieldErrors> {
    let mut errors = Vec::new();
    let metadata = template.metadata.as_ref().and_then(Value::as_object);
    for (field, value) in metadata.into_iter().flat_map(by_name) {
        let path = path.child("metadata").child(field);
        if field != "labels" && field != "annotations" {
            errors.push(path.error("only labels and annotations can be added"));
        }
        for name in value
            .as_object()
            .into_iter()
            .flat_map(by_name)
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

/// What the user wrote beside what the typed Pod holds of it: a field that was lost is none of a Pod's, and one that
/// came up with an empty value is required where it lacks.
fn compare(over: &Value, kept: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    match over {
        Value::Object(fields) => {
            for (name, value) in by_name(fields) {
                compare(value, &kept[name.as_str()], &path.child(name), errors);
            }
            let made_up = kept.as_object().into_iter().flat_map(by_name);
            let made_up = made_up.filter(|(name, value)| {
                !fields.contains_key(*name) && (**value == json!("") || **value == json!(0))
            });
            errors.extend(made_up.map(|(name, _)| path.child(name).error("is required here")));
        }
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                compare(item, &kept[i], &path.index(i), errors);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            if !over.is_null() && kept.is_null() {
                errors.push(path.error("is not a field of a Pod"));
            }
        }
    }
}

#[cfg(test)]
mod tests;
