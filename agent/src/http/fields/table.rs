//! The table. It covers every field of a schema of OpenAI, SGLang or vLLM; the test next to it
//! checks this against their lists. Fields that several scopes handle alike share a row.

mod engine;
mod openai;
mod responses;
mod sampling;
mod tokenize;

use super::{Field, Scope};

pub(super) const GROUPS: &[&[Field]] = &[
    openai::FIELDS,
    sampling::FIELDS,
    engine::FIELDS,
    engine::PLUMBING,
    responses::FIELDS,
    tokenize::FIELDS,
];

const CHAT: &[Scope] = &[Scope::Chat];
const COMPLETIONS: &[Scope] = &[Scope::Completions];
const OPENAI: &[Scope] = &[Scope::Chat, Scope::Completions];
const GENERATE: &[Scope] = &[Scope::Generate];
const PARAMS: &[Scope] = &[Scope::SamplingParams];
const ROUTES: &[Scope] = &[Scope::Chat, Scope::Completions, Scope::Generate];
const SAMPLING: &[Scope] = &[Scope::Chat, Scope::Completions, Scope::SamplingParams];
/// What routes that draw tokens have alike.
const DRAWN: &[Scope] = &[
    Scope::Chat,
    Scope::Completions,
    Scope::Responses,
    Scope::SamplingParams,
];
const SEEDED: &[Scope] = &[Scope::Chat, Scope::Completions, Scope::Responses];
/// What the router writes.
const ROUTED: &[Scope] = &[
    Scope::Chat,
    Scope::Completions,
    Scope::Responses,
    Scope::Generate,
];
const TEMPLATED: &[Scope] = &[Scope::Chat, Scope::Responses];
const RESPONSES: &[Scope] = &[Scope::Responses];
const RESPONSE_TEXT: &[Scope] = &[Scope::ResponseText];
const RESPONSE_REASONING: &[Scope] = &[Scope::ResponseReasoning];
const STREAM_OPTIONS: &[Scope] = &[Scope::StreamOptions];
const MESSAGE: &[Scope] = &[Scope::Message];

const TEXT_ONLY: &str = "this model reads and writes text only; leave it out";
