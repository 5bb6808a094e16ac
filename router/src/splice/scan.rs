//! One pass over a JSON object that borrows each member's value as it stands in the text, and finds
//! where the fields go that the router sets.

use serde::de::{DeserializeSeed, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

/// What the router sets for some workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    BootstrapHost,
    BootstrapPort,
    BootstrapRoom,
    KvTransferParams,
    MaxTokens,
    MaxCompletionTokens,
    MinTokens,
    N,
    Prompt,
    Seed,
    Stream,
    StreamOptions,
}

/// The fields of a bootstrap, in the order in which they are added. They are the router's alone.
pub(super) const BOOTSTRAP: [Field; 3] = [
    Field::BootstrapHost,
    Field::BootstrapPort,
    Field::BootstrapRoom,
];
/// Of a name, its quotes, colon and comma.
pub(super) const NAME_LEN_MAX: usize = 32;

/// Where the fields go in one body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SplicePoints {
    /// Byte ranges of the values that the client gave.
    pub(super) given: [Option<Range<usize>>; Field::ALL.len()],
    /// Position of the closing brace.
    pub(super) close_at: usize,
    pub(super) is_empty: bool,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum SpliceError {
    /// With line and column.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("{0} appears twice")]
    Duplicate(&'static str),
}

struct Scan<'a, 's, F> {
    text: &'a str,
    visit: F,
    points: &'s mut SplicePoints,
    duplicate: &'s mut Option<&'static str>,
}

/// Calls `visit` with every member's key, unescaped, and its value. `visit` may refuse a key that
/// appears twice by returning its name; what the router sets is refused so here, and bootstrap fields are not visited.
///
/// # Errors
/// Where the text is no JSON object, with line and column.
pub(crate) fn scan_object<'a>(
    text: &'a str,
    visit: impl FnMut(&str, &'a RawValue) -> Result<(), &'static str>,
) -> Result<SplicePoints, SpliceError> {
    let mut points = SplicePoints {
        is_empty: true,
        ..SplicePoints::default()
    };
    let mut duplicate = None;
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let scan = Scan {
        text,
        visit,
        points: &mut points,
        duplicate: &mut duplicate,
    };
    let scanned = scan
        .deserialize(&mut deserializer)
        .and_then(|()| deserializer.end());
    if let Some(key) = duplicate {
        return Err(SpliceError::Duplicate(key));
    }
    scanned?;
    let object_len = text.trim_end_matches([' ', '\n', '\r', '\t']).len();
    points.close_at = object_len - 1;
    Ok(points)
}

/// Where `part`, borrowed from `text`, stands in it.
pub(crate) fn span(text: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr() as usize - text.as_ptr() as usize;
    start..start + part.len()
}

// === impl Field ===

impl Field {
    const ALL: [Self; 12] = [
        Self::BootstrapHost,
        Self::BootstrapPort,
        Self::BootstrapRoom,
        Self::KvTransferParams,
        Self::MaxTokens,
        Self::MaxCompletionTokens,
        Self::MinTokens,
        Self::N,
        Self::Prompt,
        Self::Seed,
        Self::Stream,
        Self::StreamOptions,
    ];

    fn of(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.name() == key)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::BootstrapHost => "bootstrap_host",
            Self::BootstrapPort => "bootstrap_port",
            Self::BootstrapRoom => "bootstrap_room",
            Self::KvTransferParams => "kv_transfer_params",
            Self::MaxTokens => "max_tokens",
            Self::MaxCompletionTokens => "max_completion_tokens",
            Self::MinTokens => "min_tokens",
            Self::N => "n",
            Self::Prompt => "prompt",
            Self::Seed => "seed",
            Self::Stream => "stream",
            Self::StreamOptions => "stream_options",
        }
    }
}

// === impl Scan ===

impl<'a, F> DeserializeSeed<'a> for Scan<'a, '_, F>
where
    F: FnMut(&str, &'a RawValue) -> Result<(), &'static str>,
{
    type Value = ();
    fn deserialize<D: serde::Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'a, F> Visitor<'a> for Scan<'a, '_, F>
where
    F: FnMut(&str, &'a RawValue) -> Result<(), &'static str>,
{
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'a>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<&'a RawValue>()? {
            let key = unescape(key.get()).map_err(A::Error::custom)?;
            let value: &'a RawValue = map.next_value()?;
            self.points.is_empty = false;
            let field = Field::of(&key);
            if let Some(field) = field {
                let given = &mut self.points.given[field as usize];
                if given.replace(span(self.text, value.get())).is_some() {
                    return self.refuse(field.name());
                }
            }
            let is_bootstrap = field.is_some_and(|field| BOOTSTRAP.contains(&field));
            if !is_bootstrap && let Err(twice) = (self.visit)(&key, value) {
                return self.refuse(twice);
            }
        }
        Ok(())
    }
}

impl<F> Scan<'_, '_, F> {
    fn refuse<E: serde::de::Error>(self, key: &'static str) -> Result<(), E> {
        *self.duplicate = Some(key);
        Err(E::custom("a field appears twice"))
    }
}

/// A key's text, of which most need no unescaping.
fn unescape(quoted: &str) -> Result<Cow<'_, str>, serde_json::Error> {
    if quoted.contains('\\') {
        serde_json::from_str(quoted).map(Cow::Owned)
    } else {
        Ok(Cow::Borrowed(&quoted[1..quoted.len() - 1]))
    }
}
