//! What becomes of each field of a request: honoured, harmless or refused, so that none is ignored
//! in silence. One table for all routes ([`table`]); bodies are held against it before they are
//! read into their types.

mod check;
mod table;

pub(crate) use check::check;

/// Where a field stands: the body of a route, or an object inside one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Chat,
    Completions,
    Generate,
    /// Objects of `/generate`'s `sampling_params`.
    SamplingParams,
    /// `stream_options` of OpenAI's routes.
    StreamOptions,
    /// Elements of `messages`.
    Message,
}

/// A row of the table: one field of one or more scopes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub(crate) scopes: &'static [Scope],
    pub(crate) name: &'static str,
    pub(crate) how: How,
}

/// What becomes of a field.
#[derive(Clone, Copy, Debug)]
pub(crate) enum How {
    Honoured,
    /// Read over: the answer is what it would be with the field's effect. Says why.
    Harmless(&'static str),
    /// 400 with this sentence, unless the value asks for nothing: null, false, an empty text, list
    /// or object, or one of `idle`, written as JSON.
    Refused {
        instead: &'static str,
        idle: &'static [&'static str],
    },
}

// === impl Scope ===

impl Scope {
    /// The scope of the objects in `field`, if they have fields of their own.
    fn nested(self, field: &str) -> Option<Self> {
        match (self, field) {
            (Self::Generate, "sampling_params") => Some(Self::SamplingParams),
            (Self::Chat | Self::Completions, "stream_options") => Some(Self::StreamOptions),
            (Self::Chat, "messages") => Some(Self::Message),
            _ => None,
        }
    }

    /// Fields that are not in the table are refused. Messages may have any: the model's chat
    /// template sees them all.
    fn is_closed(self) -> bool {
        self != Self::Message
    }
}

// === impl Field ===

impl Field {
    /// The row of `name` in `scope`, after its place among the scope's rows.
    pub(crate) fn find(scope: Scope, name: &str) -> Option<(usize, &'static Self)> {
        let mut rows = Self::of(scope).enumerate();
        rows.find(|(_, field)| field.name == name)
    }

    /// The rows of `scope`.
    pub(crate) fn of(scope: Scope) -> impl Iterator<Item = &'static Self> {
        let all = table::GROUPS.iter().copied().flatten();
        all.filter(move |field| field.scopes.contains(&scope))
    }
}

const fn honoured(scopes: &'static [Scope], name: &'static str) -> Field {
    let how = How::Honoured;
    Field { scopes, name, how }
}

const fn harmless(scopes: &'static [Scope], name: &'static str, why: &'static str) -> Field {
    let how = How::Harmless(why);
    Field { scopes, name, how }
}

const fn refused(scopes: &'static [Scope], name: &'static str, instead: &'static str) -> Field {
    refused_unless(&[], scopes, name, instead)
}

const fn refused_unless(
    idle: &'static [&'static str],
    scopes: &'static [Scope],
    name: &'static str,
    instead: &'static str,
) -> Field {
    let how = How::Refused { instead, idle };
    Field { scopes, name, how }
}

#[cfg(test)]
mod tests;
