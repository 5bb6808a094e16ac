//! How states of a stored object compare.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
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

/// Resource versions of one object are numbers that grow. Source: KEP-5504.
pub(crate) fn resource_version(object: &ObjectMeta) -> u64 {
    let version = object.resource_version.as_deref();
    version
        .and_then(|version| version.parse().ok())
        .unwrap_or(0)
}
