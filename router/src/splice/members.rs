//! Members of a JSON object, set in its own text.

use super::scan::{SpliceError, scan_object, span};
use std::ops::Range;

/// `object` with these members, whose values are JSON: overwritten where they stand, else added at the end. Every other byte
/// stays as it came.
///
/// # Errors
/// If `object` is no JSON object.
pub(crate) fn set_members(object: &str, members: &[(&str, &str)]) -> Result<String, SpliceError> {
    let mut given: Vec<(usize, Range<usize>)> = Vec::new();
    let points = scan_object(object, |key, value| {
        if let Some(idx) = members.iter().position(|(name, _)| *name == key) {
            given.push((idx, span(object, value.get())));
        }
        Ok(())
    })?;
    let added = members.iter().map(|(key, value)| key.len() + value.len());
    let mut out = String::with_capacity(object.len() + added.sum::<usize>() + 4 * members.len());
    let mut copied = 0;
    for (idx, range) in &given {
        out.push_str(&object[copied..range.start]);
        out.push_str(members[*idx].1);
        copied = range.end;
    }
    out.push_str(&object[copied..points.close_at]);
    let mut needs_comma = !points.is_empty;
    for (idx, (key, value)) in members.iter().enumerate() {
        if given.iter().all(|(given, _)| *given != idx) {
            let comma = if needs_comma { "," } else { "" };
            out.extend([comma, "\"", key, "\":", value]);
            needs_comma = true;
        }
    }
    out.push_str(&object[points.close_at..]);
    Ok(out)
}
