//! Any expressions, a line each, over any text, the rest.

use super::*;
use pd_fuzz::{Memory, fuzz, oracle};
use regex::Regex;

/// Parsed classes of all letters, 6 KiB for two bytes, before they prove too large.
const EXPRESSIONS: Memory = Memory {
    base: 8 << 20,
    per_byte: 8 << 10,
};
/// The oracle searches each beginning of a text.
const TEXT_BYTES_MAX: usize = 64;

#[test]
fn expressions() {
    fuzz!("expressions", EXPRESSIONS, |bytes| {
        let all = String::from_utf8_lossy(bytes);
        let (patterns, text) = all.split_once("\n\n").unwrap_or((&all, "a b1.Z\u{e9}"));
        let patterns: Vec<String> = patterns.lines().map(str::to_owned).collect();
        let Ok(stop) = StopRegex::new(patterns.clone()) else {
            return;
        };
        let Some(mut matcher) = stop.matcher() else {
            return;
        };
        let text = &text[..text.floor_char_boundary(TEXT_BYTES_MAX)];
        let mut ends = text
            .char_indices()
            .map(|(at, c)| (at, at + c.len_utf8(), c));
        let found = ends.find_map(|(at, end, c)| {
            let found = matcher.push(c)?;
            Some((if found.has_last { end } else { at }, end, found))
        });
        oracle(|| {
            let regexes = patterns.iter().map(|pattern| Regex::new(pattern));
            let Ok(regexes) = regexes.collect::<Result<Vec<Regex>, _>>() else {
                return;
            };
            let is_match = |text: &str| regexes.iter().any(|regex| regex.is_match(text));
            match found {
                None => assert!(!is_match(text), "{patterns:?} {text:?}"),
                Some((cut, end, found)) => {
                    assert!(is_match(&text[..end]), "{patterns:?} {text:?}");
                    let before = text[..end].char_indices().last().map_or(0, |(at, _)| at);
                    assert!(!is_match(&text[..before]), "{patterns:?} {text:?}");
                    assert!(cut <= end && patterns.contains(&found.pattern));
                }
            }
        });
    });
}
