//! Texts of peers, which are refused as they are read if they are longer than ours ever are: what is kept, repeated in answers
//! and logged of a stranger's message stays small.

use serde::de::{Deserialize, Deserializer, Error};

/// Of a session's id.
pub const SESSION_ID_BYTES_MAX: usize = 512;
/// Of a host's name or address.
pub(crate) const HOST_BYTES_MAX: usize = 255;
/// Of names and digests.
pub(crate) const NAME_BYTES_MAX: usize = 255;

pub(crate) fn session_id<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    text(from, SESSION_ID_BYTES_MAX)
}

pub(crate) fn host<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    text(from, HOST_BYTES_MAX)
}

pub(crate) fn name<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    text(from, NAME_BYTES_MAX)
}

fn text<'de, D: Deserializer<'de>>(from: D, bytes_max: usize) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    if text.len() > bytes_max {
        let bytes = text.len();
        return Err(D::Error::custom(format_args!(
            "a text of {bytes} bytes, where {bytes_max} are the most"
        )));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    //! Facts about texts that are too long.

    use super::*;
    use crate::control::SessionId;
    use crate::layout::KvGroup;
    use serde_json::json;

    #[test]
    fn a_text_of_a_peer_is_no_longer_than_ours() {
        let id = |bytes: usize| serde_json::from_value::<SessionId>(json!("a".repeat(bytes)));
        assert!(id(SESSION_ID_BYTES_MAX).is_ok());
        let refused = id(SESSION_ID_BYTES_MAX + 1).unwrap_err().to_string();
        assert_eq!(refused, "a text of 513 bytes, where 512 are the most");
        let group = json!({"name": "n".repeat(1 << 20)});
        let refused = serde_json::from_value::<KvGroup>(group).unwrap_err();
        assert!(refused.to_string().contains("1048576 bytes"), "{refused}");
    }
}
