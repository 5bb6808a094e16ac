//! The text of a key file, changed as a rotation needs it. Comments and empty lines stay where they are.

use pd_identity::Keyring;

/// The public names of the keys, in the order of the text; nothing for a text that cannot be used.
pub(super) fn ids(text: &[u8]) -> Vec<String> {
    let keyring = Keyring::parse("keys", text);
    let ids = keyring.map(|keyring| keyring.key_ids()).unwrap_or_default();
    ids.into_iter().map(|(id, _)| id.to_string()).collect()
}

/// With a further key at the end.
pub(super) fn with_last(text: &[u8], key: &str) -> Vec<u8> {
    let mut text = text.to_vec();
    if !text.is_empty() && !text.ends_with(b"\n") {
        text.push(b'\n');
    }
    text.extend_from_slice(key.as_bytes());
    text.push(b'\n');
    text
}

/// With the key of a name before all others.
pub(super) fn with_first(text: &[u8], id: &str) -> Vec<u8> {
    let (first, rest) = split(text, |line| id_of(line).as_deref() == Some(id));
    [first, rest].concat()
}

/// Without every key but that of a name.
pub(super) fn with_only(text: &[u8], id: &str) -> Vec<u8> {
    let is_other = |line: &[u8]| id_of(line).is_some_and(|it| it != id);
    split(text, is_other).1
}

/// The lines of which something holds, and the others, each with its end.
fn split(text: &[u8], holds: impl Fn(&[u8]) -> bool) -> (Vec<u8>, Vec<u8>) {
    let (mut chosen, mut rest) = (Vec::new(), Vec::new());
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let to = if holds(line) { &mut chosen } else { &mut rest };
        to.extend_from_slice(line);
        if !line.ends_with(b"\n") {
            to.push(b'\n');
        }
    }
    (chosen, rest)
}

/// Nothing for a comment or an empty line.
fn id_of(line: &[u8]) -> Option<String> {
    ids(line).pop()
}

#[cfg(test)]
mod tests;
