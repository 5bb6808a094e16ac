//! Formats of strings, as far as a regular expression says what they are. Parts that may be long are bounded: models that are
//! not sure what comes next write them without end.

const DATE: &str = "[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])\
    |(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|[12][0-9]))";
const TIME: &str = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
const BYTE: &str = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
const LABEL: &str = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
/// Of a mailbox.
const ATOM: &str = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,64}";
/// Of a URI behind its scheme, without fragments.
const URI: &str = "(?:[A-Za-z0-9._~:/?@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})";

/// `None` for a format that is not known here.
pub(super) fn regex(format: &str) -> Option<String> {
    let hex = |len: usize| format!("[0-9a-fA-F]{{{len}}}");
    Some(match format {
        "date" => DATE.to_owned(),
        "time" => TIME.to_owned(),
        "date-time" => format!("(?:{DATE})T{TIME}"),
        "email" => format!(r"{ATOM}(?:\.{ATOM}){{0,7}}@{LABEL}(?:\.{LABEL}){{0,7}}"),
        "hostname" => format!(r"{LABEL}(?:\.{LABEL}){{0,7}}"),
        "ipv4" => format!(r"{BYTE}(?:\.{BYTE}){{3}}"),
        "uuid" => [8, 4, 4, 4, 12].map(hex).join("-"),
        "uri" => format!("[A-Za-z][A-Za-z0-9+.-]*:{URI}+(?:#{URI}*)?"),
        _ => return None,
    })
}
