//! Any bytes as config.json and generation_config.json: refused, or numbers within their bounds.

use super::*;
use pd_fuzz::{Memory, fuzz};

/// Values of JSON take 32 bytes for two of their own, in lists that grow by doubling; a number makes
/// up to 1,024 layers.
const MEMORY: Memory = Memory {
    base: 512 << 10,
    per_byte: 256,
};

fn fields(bytes: &[u8]) -> Option<Fields> {
    let map = serde_json::from_slice(bytes).ok()?;
    Some(Fields::new("config.json".to_owned(), map))
}

/// The same text is read as either file.
#[test]
fn model_config() {
    fuzz!("model_config", MEMORY, |bytes| {
        let Some(fields) = fields(bytes) else {
            return;
        };
        if let Ok((config, _)) = build_config(&fields, Some(&fields)) {
            config.check("read").expect("what was read was checked");
            assert!(!config.layers.is_empty());
        }
        if let Ok(defaults) = sampling(&fields) {
            let SamplingDefaults {
                temperature,
                top_p,
                top_k,
                min_p,
                repetition_penalty,
            } = defaults;
            assert!(
                temperature.is_none_or(|t| t.is_finite() && t >= 0.0),
                "{temperature:?}"
            );
            assert!(top_p.is_none_or(|p| p > 0.0 && p <= 1.0), "{top_p:?}");
            assert!(top_k.is_none_or(|k| k > 0));
            assert!(min_p.is_none_or(|p| (0.0..=1.0).contains(&p)));
            assert!(repetition_penalty.is_none_or(|p| p > 0.0 && p <= 2.0));
        }
    });
}
