//! Any file as an API key: refused, or a key that a client can present.

use super::*;
use http::HeaderValue;
use pd_fuzz::{Memory, fuzz};

const MEMORY: Memory = Memory {
    base: 4096,
    per_byte: 8,
};

#[test]
fn api_key_file() {
    fuzz!("api_key_file", MEMORY, |bytes| {
        let source = KeyFiles(PathBuf::from("keys"));
        let content = vec![(PathBuf::from("keys"), bytes.to_vec())];
        let change = source.parse_change(&content).expect("the good keys count");
        match source.parse(&content) {
            Ok(keys) => {
                assert_eq!((keys.len(), change.value.len()), (1, 1));
                let bearer = keys[0].to_bearer();
                assert!(bearer.len() <= "Bearer ".len() + SECRET_BYTES_MAX);
                assert!(HeaderValue::try_from(bearer.as_str()).is_ok());
                let presented = pd_protocol::secret::bearer_token(bearer.as_bytes());
                let presented = presented.expect("a bearer token");
                assert!(keys[0].matches(presented));
                assert!(!keys[0].matches(&presented[1..]));
            }
            Err(error) => {
                assert!(change.value.is_empty() && change.unusable.is_some());
                assert!(error.to_string().len() < 512);
            }
        }
    });
}
