//! Sources of clients: what they allow, why they are refused, and that none takes long or much.

mod jumps;

use super::*;
use crate::info::EngineInfo;
use crate::metrics::EngineMetrics;
use crate::model::config::SamplingDefaults;
use crate::request::{FinishReason, StopMatch};
use crate::text::Tokenizer;
use pd_protocol::Role;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

pub(super) static TOKENIZER: LazyLock<Arc<Tokenizer>> = LazyLock::new(|| {
    let folder = crate::text::tests::golden("tiny-llama");
    Arc::new(Tokenizer::from_folder(&folder).expect("the tiny tokenizer is read"))
});

/// The model has more tokens than its tokenizer, and two that end an answer, of which the second looks like text.
pub(super) const VOCAB: u32 = 400;
const ENDS: [u32; 2] = [2, 360];

pub(super) fn mk_grammars() -> Grammars {
    mk_grammars_of(&ENDS)
}

fn mk_grammars_of(ends: &[u32]) -> Grammars {
    let info = EngineInfo {
        role: Role::Unified,
        model_path: String::new(),
        tokenizer_path: String::new(),
        sampling_defaults: SamplingDefaults::default(),
        served_model_name: String::new(),
        weight_version: String::new(),
        model_type: String::new(),
        context_length: 1,
        max_total_tokens: 1,
        max_window_tokens: 0,
        page_size: 1,
        max_running_requests: 1,
        vocab_size: VOCAB,
        eos_token_ids: ends.to_vec(),
        dtype: String::new(),
        kv_cache_dtype: String::new(),
        kv_compat: String::new(),
        boot_id: String::new(),
    };
    Grammars::new(&info, TOKENIZER.clone(), EngineMetrics::new().grammars)
}

pub(super) fn compile(grammars: &Grammars, source: GrammarSource) -> Result<Grammar, GrammarError> {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime
        .expect("a runtime")
        .block_on(grammars.compile(source))
}

/// Tokens of `text`, of which some have several bytes.
pub(super) fn tokens(text: &str) -> Vec<u32> {
    TOKENIZER.encode(text, false).expect("plain text")
}

/// Whether an answer may be the text of these tokens. Where its text is forced, it has the tokenizer's tokens, which other
/// tokens of the text are taken for.
pub(super) fn has_tokens(grammar: &Grammar, tokens: &[u32]) -> bool {
    let state = GrammarState::new(grammar.clone());
    let taken = tokens.iter().all(|token| {
        let words = state.mask_job(&[], Vec::new()).run();
        let is_allowed = words[*token as usize / 32] >> (token % 32) & 1 == 1;
        let is_forced = words.iter().map(|word| word.count_ones()).sum::<u32>() == 1;
        let is_taken = state.take(*token).is_none();
        assert!(
            is_allowed == is_taken || is_forced && is_taken,
            "token {token} in {tokens:?}: {is_allowed}, {is_taken}"
        );
        is_taken
    });
    taken && matches!(state.take(ENDS[0]), Some(FinishReason::Stop { .. }))
}

pub(super) fn has_text(grammar: &Grammar, text: &str) -> bool {
    has_tokens(grammar, &tokens(text))
}

fn schema(text: &str) -> GrammarSource {
    GrammarSource::JsonSchema(text.to_owned())
}

fn regex(text: &str) -> GrammarSource {
    GrammarSource::Regex(text.to_owned())
}

/// Ids that are allowed after `text`.
fn allowed_after(state: &GrammarState, text: &str, withheld: &[u32]) -> Vec<u32> {
    for token in TOKENIZER.encode(text, false).expect("plain text") {
        assert_eq!(state.take(token), None, "{text}");
    }
    let words = state.mask_job(&[], withheld.to_vec()).run();
    let is_set = |id: &u32| words[*id as usize / 32] >> (id % 32) & 1 == 1;
    (0..VOCAB.next_multiple_of(32)).filter(is_set).collect()
}

fn state_of(source: GrammarSource) -> GrammarState {
    GrammarState::new(compile(&mk_grammars(), source).expect("a grammar"))
}

#[test]
fn text_is_allowed_and_special_tokens_and_ends_are_not() {
    let allowed = allowed_after(&state_of(schema(r#"{"type": "string"}"#)), "\"a", &[]);
    let texts: Vec<_> = allowed
        .iter()
        .map(|id| TOKENIZER.decode(&[*id], false))
        .collect();
    assert!(texts.contains(&"b".to_owned()) && texts.contains(&"\"".to_owned()));
    assert!(
        (0..3)
            .chain(ENDS)
            .chain(384..VOCAB)
            .all(|id| !allowed.contains(&id)),
        "{allowed:?}"
    );
}

#[test]
fn names_and_texts_have_one_form() {
    let grammars = mk_grammars();
    let source =
        schema(r#"{"properties": {"a": {"type": "null"}}, "patternProperties": {"^b$": false}}"#);
    let grammar = compile(&grammars, source).expect("a grammar");
    for (text, expected) in [
        (r#"{"a":null,"é\n":1}"#, true),
        (r#"{"a":1}"#, false),
        (r#"{"\u0061":1}"#, false),
        (r#"{"b":1}"#, false),
        (r#"{"\u0062":1}"#, false),
        (r#"{"c":"\u001b"}"#, false),
    ] {
        assert_eq!(has_text(&grammar, text), expected, "{text}");
    }
}

#[test]
fn every_end_is_allowed_where_the_grammar_may_end_and_alone_where_it_must() {
    let state = state_of(regex("ab*"));
    assert!(
        ENDS.iter()
            .all(|end| !allowed_after(&state, "", &[]).contains(end))
    );
    let allowed = allowed_after(&state, "a", &[]);
    assert!(ENDS.iter().all(|end| allowed.contains(end)) && allowed.len() > ENDS.len());
    let ended = FinishReason::Stop {
        matched: StopMatch::Token(360),
    };
    assert_eq!(state.take(360), Some(ended));
    let state = state_of(GrammarSource::Choice(vec!["ab".to_owned()]));
    assert_eq!(allowed_after(&state, "ab", &[]), ENDS);
}

#[test]
fn withheld_ids_wait_until_nothing_else_is_left() {
    let state = state_of(regex("ab?"));
    let open = allowed_after(&state, "a", &ENDS);
    assert!(!open.is_empty() && ENDS.iter().all(|end| !open.contains(end)));
    assert_eq!(allowed_after(&state, "b", &ENDS), ENDS);
}

#[test]
fn a_token_that_is_not_allowed_ends_the_answer() {
    for token in [
        TOKENIZER.encode("b", false).expect("plain text")[0],
        1,
        2,
        VOCAB + 1,
    ] {
        let state = state_of(regex("ac"));
        let Some(FinishReason::Abort { reason, .. }) = state.take(token) else {
            panic!("token {token} is taken");
        };
        assert!(
            reason.starts_with(&format!("token {token} is not of")),
            "{reason}"
        );
        assert!(
            !reason.contains("backtrace") && reason.len() < 300,
            "{reason}"
        );
        // From then on nothing is allowed.
        if !ENDS.contains(&token) {
            assert!(allowed_after(&state, "", &[]).is_empty());
            assert!(
                state
                    .why_none()
                    .starts_with("the grammar allows no next token")
            );
        }
    }
}

#[test]
fn refusals_say_what_and_where() {
    let grammars = mk_grammars();
    for (source, expected) in [
        (
            schema("{"),
            "the JSON schema cannot constrain an answer: it is not JSON",
        ),
        (
            schema(r#"{"items": {"not": {}}}"#),
            "at #/items: not cannot be enforced",
        ),
        (
            schema(r#"{"properties": {"a": {"format": "colour"}}}"#),
            "Unknown format: colour",
        ),
        (
            schema(r#"{"oneOf": [{"minimum": 1}, {"maximum": 9}]}"#),
            "oneOf is enforced where",
        ),
        (schema("false"), "false allows nothing"),
        (
            schema(r#"{"type": "integer", "minimum": 5, "maximum": 1}"#),
            "Unsatisfiable",
        ),
        (schema(r#"{"type": "colour"}"#), "Invalid type: colour"),
        (
            schema(r#"{"type": "string", "pattern": "(?=a)b"}"#),
            "look-around",
        ),
        (schema(r##"{"$ref": "#"}"##), "none of its values ends"),
        (
            schema(r##"{"$ref": "http://localhost/a"}"##),
            "is not in this schema",
        ),
        (regex("(a"), "unclosed group"),
        (regex("a\\"), "single backslash"),
        (regex(""), "it is empty"),
        (GrammarSource::Choice(vec![]), "it has no text"),
    ] {
        let error = compile(&grammars, source.clone()).expect_err("it is refused");
        assert!(!error.is_retriable());
        let text = error.to_string();
        assert!(text.contains(expected), "{source:?}: {text}");
        assert!(!text.contains("backtrace") && text.len() < 1200, "{text}");
    }
}

#[test]
fn a_model_without_an_end_has_no_grammars() {
    let grammars = mk_grammars_of(&[]);
    let refused = compile(&grammars, GrammarSource::JsonObject).map(drop);
    assert_eq!(refused, Err(GrammarError::NoEnd));
}

#[test]
fn more_sources_than_may_wait_are_refused_for_now() {
    let grammars = mk_grammars();
    grammars.start_none();
    let mut cx = Context::from_waker(Waker::noop());
    let mut waiting: Vec<_> = (0..COMPILES_WAITING_MAX)
        .map(|i| Box::pin(grammars.compile(regex(&format!("a{{{i}}}b")))))
        .collect();
    assert!(
        waiting
            .iter_mut()
            .all(|one| one.as_mut().poll(&mut cx).is_pending())
    );
    let one_more = pin!(grammars.compile(regex("b"))).poll(&mut cx);
    assert!(matches!(one_more, Poll::Ready(Err(GrammarError::Busy))));
}

/// Compiles it, and draws some tokens by it if there is a grammar.
pub(super) fn assert_bounded(grammars: &Grammars, what: &str, source: GrammarSource) {
    let began = Instant::now();
    let compiled = compile(grammars, source);
    let outcome = match compiled {
        Ok(grammar) => {
            let state = GrammarState::new(grammar);
            for _ in 0..8 {
                let words = state.mask_job(&[], Vec::new()).run();
                let first = (0..VOCAB).find(|id| words[*id as usize / 32] >> (id % 32) & 1 == 1);
                if first.is_none_or(|first| state.take(first).is_some()) {
                    break;
                }
            }
            "compiled".to_owned()
        }
        Err(error) => error.to_string(),
    };
    // Far above what it takes: a busy machine may be slow.
    assert!(
        began.elapsed() < Duration::from_secs(30),
        "{what}: {outcome}"
    );
}

#[test]
fn hostile_schemas_end_soon() {
    let grammars = mk_grammars();
    let huge = schema(&format!(r#"{{"title": "{}"}}"#, "a".repeat(10 << 20)));
    let error = compile(&grammars, huge).expect_err("it is too long");
    assert!(matches!(error, GrammarError::TooLong { .. }), "{error}");
    let chain = |beside: &str, len: usize| {
        let next = |i: usize| format!(r##""a{i}":{{"$ref":"#/$defs/a{}"{beside}}}"##, i + 1);
        let defs: Vec<_> = (0..len).map(next).collect();
        let defs = defs.join(",");
        schema(&format!(
            r##"{{"$defs":{{{defs},"a{len}":{{"type":"null"}}}},"$ref":"#/$defs/a0"}}"##
        ))
    };
    let nested = |open: &str, close: &str, len: usize| {
        schema(&format!("{}true{}", open.repeat(len), close.repeat(len)))
    };
    let list =
        |len: usize, entry: fn(usize) -> String| (0..len).map(entry).collect::<Vec<_>>().join(",");
    let words = list(60_000, |i| format!("\"w{i}\""));
    let properties = list(2_000, |i| format!("\"p{i}\":{{}}"));
    for (what, source) in [
        ("a chain of references", chain("", 16_000)),
        ("a chain of copies", chain(r#","type":"null""#, 16_000)),
        ("a deep schema", nested(r#"{"items":"#, "}", 100)),
        ("a deeper one", nested(r#"{"items":"#, "}", 100_000)),
        ("words", schema(&format!("{{\"enum\":[{words}]}}"))),
        (
            "properties",
            schema(&format!("{{\"properties\":{{{properties}}}}}")),
        ),
        (
            "characters",
            schema(r#"{"type":"string","maxLength":4000000000}"#),
        ),
        ("items", schema(r#"{"type":"array","minItems":1000000000}"#)),
        (
            "ways",
            schema(r#"{"type":"string","pattern":"(a|b)*a(a|b){60}$"}"#),
        ),
    ] {
        assert_bounded(&grammars, what, source);
    }
}

#[test]
fn hostile_expressions_end_soon() {
    let grammars = mk_grammars();
    let groups = format!("{}a{}", "(".repeat(8_000), ")".repeat(8_000));
    let chain = |len: usize| {
        let rule = |i: usize| format!("a{i} ::= \"x\" a{} | a{i} \"y\"\n", i + 1);
        let rules: String = (0..len).map(rule).collect();
        format!("root ::= a0\n{rules}a{len} ::= \"z\"")
    };
    let repeated = "root ::= (((root \"a\"){9999} \"b\"){9999} | [^a]{0,9999}){9999}".to_owned();
    let texts = (0..100_000).map(|i| i.to_string()).collect();
    for (what, source) in [
        ("ways", regex("(a|b|aa|ab)*a(a|b){200}")),
        (
            "repeats",
            regex("((((a{1,100}){1,100}){1,100}){1,100}){1,100}"),
        ),
        ("classes", regex(&r"\w".repeat(REGEX_BYTES_MAX / 2))),
        ("folds", regex(&format!("(?i){}", r"\w".repeat(8_000)))),
        ("groups", regex(&groups)),
        ("texts", GrammarSource::Choice(texts)),
        ("rules in rules", GrammarSource::Ebnf(chain(4_000))),
        ("more rules", GrammarSource::Ebnf(chain(30_000))),
        ("repeated rules", GrammarSource::Ebnf(repeated)),
        (
            "parts",
            GrammarSource::Ebnf(format!("root ::= {}", "a ".repeat(1 << 18))),
        ),
    ] {
        assert_bounded(&grammars, what, source);
    }
}
