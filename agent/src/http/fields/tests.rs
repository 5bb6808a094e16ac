//! The table against the schemas of OpenAI, SGLang and vLLM, and its effect on requests.

use super::*;
use crate::http::body::{Body, parse};
use crate::http::error::ApiError;
use crate::http::generate::request::GenerateBody;
use crate::http::openai::OpenAiRequest;
use crate::http::openai::responses::ResponsesRequest;
use crate::http::tokenize::{DetokenizeBody, TokenizeBody};
use std::fmt::Write as _;

const SCOPES: [Scope; 11] = [
    Scope::Chat,
    Scope::Completions,
    Scope::Generate,
    Scope::SamplingParams,
    Scope::StreamOptions,
    Scope::Message,
    Scope::Responses,
    Scope::ResponseText,
    Scope::ResponseReasoning,
    Scope::Tokenize,
    Scope::Detokenize,
];

/// Names of fields, one per line, below a line with their source.
const SCHEMAS: &[(Scope, &str)] = &[
    (Scope::Chat, include_str!("../testdata/openai-chat.txt")),
    (Scope::Chat, include_str!("../testdata/sglang-chat.txt")),
    (Scope::Chat, include_str!("../testdata/vllm-chat.txt")),
    (
        Scope::Completions,
        include_str!("../testdata/openai-completions.txt"),
    ),
    (
        Scope::Completions,
        include_str!("../testdata/sglang-completions.txt"),
    ),
    (
        Scope::Completions,
        include_str!("../testdata/vllm-completions.txt"),
    ),
    (
        Scope::Generate,
        include_str!("../testdata/sglang-generate.txt"),
    ),
    (
        Scope::SamplingParams,
        include_str!("../testdata/sglang-sampling-params.txt"),
    ),
    (
        Scope::StreamOptions,
        include_str!("../testdata/openai-stream-options.txt"),
    ),
    (
        Scope::StreamOptions,
        include_str!("../testdata/sglang-stream-options.txt"),
    ),
    (
        Scope::Message,
        include_str!("../testdata/openai-messages.txt"),
    ),
    (
        Scope::Message,
        include_str!("../testdata/sglang-messages.txt"),
    ),
    (
        Scope::Responses,
        include_str!("../testdata/openai-responses.txt"),
    ),
    (
        Scope::ResponseText,
        include_str!("../testdata/openai-response-text.txt"),
    ),
    (
        Scope::ResponseReasoning,
        include_str!("../testdata/openai-response-reasoning.txt"),
    ),
    (
        Scope::Tokenize,
        include_str!("../testdata/sglang-tokenize.txt"),
    ),
    (
        Scope::Tokenize,
        include_str!("../testdata/vllm-tokenize.txt"),
    ),
    (
        Scope::Detokenize,
        include_str!("../testdata/sglang-detokenize.txt"),
    ),
    (
        Scope::Detokenize,
        include_str!("../testdata/vllm-detokenize.txt"),
    ),
];

/// The response of the route of `scope` to a body with `field`, and the field's path.
fn ask(scope: Scope, field: &str, value: &str) -> (String, Result<(), ApiError>) {
    let object = format!(r#"{{"{field}": {value}}}"#);
    let (path, body) = match scope {
        Scope::ResponseText => (format!("text.{field}"), format!(r#"{{"text": {object}}}"#)),
        Scope::ResponseReasoning => (
            format!("reasoning.{field}"),
            format!(r#"{{"reasoning": {object}}}"#),
        ),
        Scope::Chat
        | Scope::Completions
        | Scope::Generate
        | Scope::Responses
        | Scope::Tokenize
        | Scope::Detokenize => (field.to_owned(), object),
        Scope::SamplingParams => (
            format!("sampling_params.{field}"),
            format!(r#"{{"sampling_params": {object}}}"#),
        ),
        Scope::StreamOptions => (
            format!("stream_options.{field}"),
            format!(r#"{{"stream_options": {object}}}"#),
        ),
        Scope::Message => (
            format!("messages[0].{field}"),
            format!(r#"{{"messages": [{{"role": "user", "{field}": {value}}}]}}"#),
        ),
    };
    let outcome = match scope {
        Scope::Completions => reads::<OpenAiRequest<u32>>(&body),
        Scope::Generate | Scope::SamplingParams => reads::<GenerateBody>(&body),
        Scope::Responses | Scope::ResponseText | Scope::ResponseReasoning => {
            reads::<ResponsesRequest>(&body)
        }
        Scope::Tokenize => reads::<TokenizeBody>(&body),
        Scope::Detokenize => reads::<DetokenizeBody>(&body),
        Scope::Chat | Scope::StreamOptions | Scope::Message => reads::<OpenAiRequest<bool>>(&body),
    };
    (path, outcome)
}

fn reads<T: Body>(body: &str) -> Result<(), ApiError> {
    parse::<T>(body.as_bytes()).map(|_| ())
}

fn rows() -> impl Iterator<Item = (Scope, &'static Field)> {
    let of = |scope| Field::of(scope).map(move |field| (scope, field));
    SCOPES.into_iter().flat_map(of)
}

#[test]
fn every_field_of_every_schema_is_in_the_table_once() {
    for (scope, schema) in SCHEMAS {
        let (source, names) = schema.split_once('\n').unwrap();
        assert!(source.starts_with("# ") && names.lines().count() > 1);
        for name in names.lines() {
            let rows = Field::of(*scope).filter(|field| field.name == name).count();
            assert_eq!(rows, 1, "{name} of {scope:?} ({source})");
        }
    }
    for (scope, field) in rows() {
        let alike = Field::of(scope).filter(|other| other.name == field.name);
        assert_eq!(alike.count(), 1, "{} of {scope:?}", field.name);
    }
}

#[test]
fn a_refused_field_is_answered_with_its_name_and_what_to_do() {
    let mut count = 0;
    for (scope, field) in rows() {
        let How::Refused { instead, idle } = field.how else {
            continue;
        };
        count += 1;
        let (path, outcome) = ask(scope, field.name, r#""x""#);
        let why = outcome.expect_err(field.name);
        assert_eq!(why.status, 400);
        assert_eq!(why.code, Some("unsupported_parameter"));
        assert_eq!(why.param.as_deref(), Some(path.as_str()));
        assert_eq!(why.message, format!("`{path}` is not supported: {instead}"));
        for nothing in ["null", "false", r#""""#, "[]", "{}", "[null, false]"]
            .iter()
            .chain(idle)
        {
            // If another route honours the field, its type is still checked.
            let code = ask(scope, field.name, nothing).1.err().map(|why| why.code);
            assert!(
                matches!(code, None | Some(Some("invalid_type"))),
                "{path}: {nothing} asks for nothing, but is refused: {code:?}"
            );
        }
    }
    assert!(count > 100, "{count}");
}

#[test]
fn a_harmless_field_is_ignored() {
    for (scope, field) in rows() {
        let How::Harmless(why) = field.how else {
            continue;
        };
        assert!(!why.is_empty());
        for value in [r#""x""#, "3", "true", r#"{"a": [1]}"#, "null"] {
            assert_eq!(ask(scope, field.name, value).1, Ok(()), "{}", field.name);
        }
    }
}

#[test]
fn an_honoured_field_is_read() {
    for (scope, field) in rows() {
        // The chat template reads the fields of messages, of any type.
        if !matches!(field.how, How::Honoured) || !scope.is_closed() {
            continue;
        }
        let refused = [r#"{"a": {}}"#, "5.5", r#""x""#].iter().any(|value| {
            let (path, outcome) = ask(scope, field.name, value);
            let param = outcome.err().and_then(|why| why.param);
            param.is_some_and(|param| param.starts_with(&path))
        });
        assert!(refused, "{} of {scope:?} takes everything", field.name);
    }
}

#[test]
fn an_unknown_field_is_answered_with_the_one_that_was_meant() {
    let refusal = |scope, field| {
        let (path, outcome) = ask(scope, field, "1");
        let why = outcome.unwrap_err();
        assert_eq!(why.param, Some(path));
        assert_eq!(why.code, Some("unknown_parameter"));
        why.message
    };
    assert_eq!(
        refusal(Scope::Chat, "temprature"),
        "Unrecognized request argument supplied: `temprature`: did you mean `temperature`?"
    );
    assert_eq!(
        refusal(Scope::SamplingParams, "maxNewTokens"),
        "Unrecognized request argument supplied: `sampling_params.maxNewTokens`: did you mean \
         `max_new_tokens`?"
    );
    assert!(
        refusal(Scope::Generate, "mirostat").ends_with("this API has no such field; leave it out")
    );
}

#[test]
fn a_list_asks_for_something_if_an_element_does() {
    for asking in ["[{}]", "[null, 1]", r#"["", "x"]"#] {
        assert!(ask(Scope::Chat, "functions", asking).1.is_err(), "{asking}");
    }
    let long = format!("[{}null]", "null, ".repeat(5000));
    assert!(ask(Scope::Generate, "lora_path", &long).1.is_err());
}

#[test]
fn the_field_that_others_go_with_is_named() {
    let body = r#"{"temprature": 1, "function_call": "f", "functions": [{}], "seed": 1}"#;
    let why = reads::<OpenAiRequest<bool>>(body).unwrap_err();
    assert_eq!(why.param.as_deref(), Some("functions"));
}

#[test]
fn a_field_of_one_element_is_named_with_its_index() {
    let body = r#"{"sampling_params": [{}, {"watermark": "a+"}], "lora_path": "x"}"#;
    let why = reads::<GenerateBody>(body).unwrap_err();
    assert_eq!(why.param.as_deref(), Some("sampling_params[1].watermark"));
}

#[test]
fn the_table_as_documents_have_it() {
    let mut text = "| field | where | how |\n|---|---|---|\n".to_owned();
    for field in table::GROUPS.iter().copied().flatten() {
        let scopes: Vec<&str> = field.scopes.iter().map(|scope| place(*scope)).collect();
        let how = match field.how {
            How::Honoured => "honoured".to_owned(),
            How::Harmless(why) => format!("harmless: {why}"),
            How::Refused { instead, idle: [] } => format!("refused: {instead}"),
            How::Refused { instead, idle } => {
                format!("refused, but for {}: {instead}", idle.join(", "))
            }
        };
        writeln!(text, "| `{}` | {} | {how} |", field.name, scopes.join(", ")).unwrap();
    }
    insta::assert_snapshot!(text);
}

fn place(scope: Scope) -> &'static str {
    match scope {
        Scope::Chat => "chat",
        Scope::Completions => "completions",
        Scope::Generate => "/generate",
        Scope::SamplingParams => "sampling_params",
        Scope::StreamOptions => "stream_options",
        Scope::Message => "messages[]",
        Scope::Responses => "responses",
        Scope::ResponseText => "text",
        Scope::ResponseReasoning => "reasoning",
        Scope::Tokenize => "/tokenize",
        Scope::Detokenize => "/detokenize",
    }
}
