//! Any valid PDDeployment can be built: objects, or a refusal with the paths of fields.

use super::*;
use crate::controller::site::Site;
use pd_fuzz::{Memory, fuzz};

/// Values of YAML with their places, the schema, and a dozen objects.
const MEMORY: Memory = Memory {
    base: 16 << 20,
    per_byte: 8192,
};

#[test]
fn built_objects() {
    fuzz!("built_objects", MEMORY, |bytes| {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("deployment.yaml");
        std::fs::write(&file, bytes).expect("room for it");
        let config = BuildConfig {
            image: "pdserve:test".to_owned(),
            discovery: true,
            site: Site {
                host_paths: vec!["/".into()],
                ..Site::default()
            },
            ..BuildConfig::default()
        };
        match render(&file, "ml", &config) {
            Ok(text) => assert!(text.contains("kind: Service")),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    });
}
