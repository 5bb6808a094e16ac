//! Secrets that this program draws.

/// Random bytes in hexadecimal.
pub(crate) fn random_text<const BYTES: usize>() -> String {
    let bytes: [u8; BYTES] = rand::random();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
