//! How each request field is handled: honoured, harmless or refused, so that none is silently
//! ignored. One table serves all routes ([`table`]); bodies are checked against it before they are
//! parsed into their types.

mod check;
mod table;

pub(crate) use check::check;

/// Where a field occurs: in the body of a route, or in an object inside one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Chat,
    Completions,
    Generate,
    Responses,
    /// Objects of `/generate`'s `sampling_params`.
    SamplingParams,
    /// `stream_options` of OpenAI's routes.
    StreamOptions,
    /// Elements of `messages`.
    Message,
    /// `text` of `/v1/responses`.
    ResponseText,
    /// `reasoning` of `/v1/responses`.
    ResponseReasoning,
    /// `/tokenize`.
    Tokenize,
    /// `/detokenize`.
    Detokenize,
}

/// A row of the table: one field of one or more scopes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub(crate) scopes: &'static [Scope],
    pub(crate) name: &'static str,
    pub(crate) how: How,
}

/// How a field is handled.
#[derive(Clone, Copy, Debug)]
pub(crate) enum How {
    Honoured,
    /// Ignored, because the answer is the same without its effect; holds the reason.
    Harmless(&'static str),
    /// 400 with this sentence, unless the value requests nothing: null, false, an empty text, list
    /// or object, or one of `idle`, written as JSON.
    Refused {
        instead: &'static str,
        idle: &'static [&'static str],
    },
}

// === impl Scope ===

impl Scope {
    /// The scope of the objects in `field`, if their fields are checked.
    fn nested(self, field: &str) -> Option<Self> {
        match (self, field) {
            (Self::Generate, "sampling_params") => Some(Self::SamplingParams),
            (Self::Chat | Self::Completions, "stream_options") => Some(Self::StreamOptions),
            (Self::Responses, "text") => Some(Self::ResponseText),
            (Self::Responses, "reasoning") => Some(Self::ResponseReasoning),
            (Self::Chat | Self::Tokenize, "messages") => Some(Self::Message),
            _ => None,
        }
    }

    /// Whether fields outside the table are refused. Messages may have any: the model's chat
    /// template sees them all.
    fn is_closed(self) -> bool {
        self != Self::Message
    }
}

// === impl Field ===

impl Field {
    /// The row of `name` in `scope`, with its index among the scope's rows.
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
