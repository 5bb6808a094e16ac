//! Any text as a PDDeployment: refused with words, or an object that keeps every rule and reads back.

use super::*;
use pd_fuzz::{Memory, fuzz};

/// Values of YAML with their places, and the object's own schema.
const MEMORY: Memory = Memory {
    base: 8 << 20,
    per_byte: 4096,
};

#[test]
fn pd_deployment() {
    fuzz!("pd_deployment", MEMORY, |bytes| {
        let Ok(text) = std::str::from_utf8(bytes) else {
            return;
        };
        // What an apiserver without our schema would pass on.
        if let Ok(unchecked) = serde_saphyr::from_str::<PdDeployment>(text) {
            let _ = crate::validate(&unchecked);
        }
        match parse(text) {
            Ok(deployment) => {
                crate::validate(&deployment).expect("what was read keeps the rules");
                let written = serde_saphyr::to_string(&deployment).expect("it can be written");
                let again = parse(&written);
                assert_eq!(again.expect("what was written reads"), deployment);
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    });
}
