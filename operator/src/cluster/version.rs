//! How states of a stored object compare.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pd_protocol::labels::ROTATE_PEER_KEYS;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Names a state of an object as far as others than its controller change it: the generation where
/// there is one, which status writes leave alone, with the metadata that a generation does not
/// cover. Another object of the same name is another state.
pub(crate) fn version_of(metadata: &ObjectMeta) -> u64 {
    let mut hasher = DefaultHasher::new();
    metadata.uid.hash(&mut hasher);
    match metadata.generation {
        Some(generation) => {
            generation.hash(&mut hasher);
            metadata.labels.hash(&mut hasher);
            metadata.finalizers.hash(&mut hasher);
            let rest = (&metadata.owner_references, &metadata.deletion_timestamp);
            format!("{rest:?}").hash(&mut hasher);
        }
        None => metadata.resource_version.hash(&mut hasher),
    }
    hasher.finish()
}

/// Names a state of a deployment as far as its users change it: as above, with the annotation that asks for other keys.
pub(crate) fn request_version(metadata: &ObjectMeta) -> u64 {
    let mut hasher = DefaultHasher::new();
    version_of(metadata).hash(&mut hasher);
    let annotations = metadata.annotations.as_ref();
    let rotation = annotations.and_then(|all| all.get(ROTATE_PEER_KEYS));
    rotation.hash(&mut hasher);
    hasher.finish()
}

/// Resource versions of one object are numbers that grow. Source: KEP-5504.
pub(crate) fn resource_version(object: &ObjectMeta) -> u64 {
    let version = object.resource_version.as_deref();
    version
        .and_then(|version| version.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    //! Facts about which changes are reconciled for.

    use super::*;
    use serde_json::json;

    #[test]
    fn a_deployment_is_reconciled_for_its_spec_and_for_other_keys_and_not_for_what_others_note_on_it()
     {
        let mk = |generation: i64, annotations: serde_json::Value| {
            let metadata =
                json!({"uid": "u", "generation": generation, "annotations": annotations});
            let metadata: ObjectMeta = serde_json::from_value(metadata).expect("metadata");
            request_version(&metadata)
        };
        let before = mk(1, json!({}));
        assert_eq!(mk(1, json!({"a": "b"})), before);
        assert_ne!(mk(2, json!({})), before);
        let asked = mk(1, json!({ROTATE_PEER_KEYS: "1"}));
        assert_ne!(asked, before);
        assert_ne!(mk(1, json!({ROTATE_PEER_KEYS: "2"})), asked);
    }
}
