//! Answers by grammars: each is what its grammar says, and what the request would have got alone, in any batch, over any
//! transport, after a retraction, with drafts or without.

mod jumps;
mod pairs;
mod schemas;

use crate::harness::start;
use crate::harness::{Answer, LLAMA, QWEN3_5, assert_nothing_held, assert_same, collect, generate};
use crate::harness::{find_metric, metric, mk_config, mk_prompt, mk_request, mk_unpenalised};
use pd_engine::engine::{EngineConfig, EngineHandle, FinishReason, GenerateRequest};
use pd_engine::engine::{StopMatch, SubmitError};
use pd_engine::grammar::{Grammar, GrammarSource};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use regex::Regex;
use schemas::{Shape, schema};

/// The model's only end id.
const END: u32 = 2;

fn compile(engine: &EngineHandle, source: &GrammarSource) -> Grammar {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let compiled = engine.grammars().compile(source.clone());
    let compiled = runtime.expect("a runtime").block_on(compiled);
    compiled.unwrap_or_else(|error| panic!("{source:?}: {error}"))
}

/// A request for up to `max_new_tokens` at a temperature where every allowed token is drawn.
pub(crate) fn mk_free(seed: u64, max_new_tokens: u32) -> GenerateRequest {
    let mut request = mk_request(&mk_prompt(9, 40), max_new_tokens);
    request.sampling.ignore_eos = false;
    request.sampling.temperature = 1.5;
    request.sampling.seed = Some(seed);
    request
}

pub(crate) fn by(
    engine: &EngineHandle,
    source: &GrammarSource,
    request: &GenerateRequest,
) -> GenerateRequest {
    GenerateRequest {
        grammar: Some(compile(engine, source)),
        ..request.clone()
    }
}

pub(crate) fn alone_by(source: &GrammarSource, request: &GenerateRequest) -> Answer {
    let engine = start(EngineConfig {
        chunked_prefill_size: None,
        page_size: 1,
        overlap_schedule: Some(false),
        jump_forward: false,
        ..mk_config(LLAMA)
    });
    generate(&engine, by(&engine, source, request))
}

/// The text before the end, if the answer came to it.
fn text(engine: &EngineHandle, answer: &Answer) -> Option<String> {
    let stop = FinishReason::Stop {
        matched: StopMatch::Token(END),
    };
    match &answer.finish {
        Some(finish) if *finish == stop => {}
        Some(FinishReason::Length) => return None,
        other => panic!("{other:?}"),
    }
    let (end, tokens) = answer.token_ids.split_last().expect("an end at least");
    assert_eq!(*end, END);
    Some(engine.tokenizer().decode(tokens, false))
}

pub(crate) fn people() -> GrammarSource {
    let schema = r#"{
        "type": "array", "minItems": 3, "maxItems": 40, "items": {
            "type": "object", "additionalProperties": false, "required": ["name", "age"],
            "properties": {
                "name": {"type": "string", "maxLength": 6},
                "age": {"type": "integer", "minimum": 0, "maximum": 120}
            }
        }
    }"#;
    GrammarSource::JsonSchema(schema.to_owned())
}

#[test]
fn answers_of_random_schemas_are_valid() {
    let engine = start(mk_config(LLAMA));
    let mut ended = 0;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for seed in 0..200 {
        let shape: Shape = schema().new_tree(&mut runner).expect("a schema").current();
        let source = GrammarSource::JsonSchema(shape.schema().to_string());
        let answer = generate(&engine, by(&engine, &source, &mk_free(seed, 300)));
        let Some(text) = text(&engine, &answer) else {
            continue;
        };
        let value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert!(shape.holds(&value), "{text}\n{source:?}");
        ended += 1;
    }
    assert!(ended > 150, "{ended} answers of 200 came to an end");
    assert!(metric(&engine, "pdserve_grammar_mask_time_seconds_count") > 1000.0);
    assert_nothing_held(&engine);
}

#[test]
fn any_object_is_an_object() {
    let engine = start(mk_config(LLAMA));
    for seed in 0..20 {
        let request = by(&engine, &GrammarSource::JsonObject, &mk_free(seed, 200));
        let answer = generate(&engine, request);
        if let Some(text) = text(&engine, &answer) {
            assert!(text.starts_with('{') && text.ends_with('}'), "{text}");
        }
    }
}

#[test]
fn answers_match_their_regular_expression() {
    let engine = start(mk_config(LLAMA));
    for pattern in [
        r"[a-z]{3,9}@[a-z]+\.(com|org)",
        r"(\+\d{1,3} )?\(\d{3}\) \d{3}-\d{4}",
        r"^(yes|no|maybe), because .{5,30}$",
        r"([01]?\d|2[0-3]):[0-5]\d",
        r"a/b\\c|\p{Greek}{1,4}",
        r"(?i)select \w{1,8} from \w{1,8};?",
        r"[^a-z]{0,12}",
    ] {
        let whole = Regex::new(&format!(r"\A(?:{pattern})\z")).expect("a regular expression");
        let source = GrammarSource::Regex(pattern.to_owned());
        for seed in 0..8 {
            let answer = generate(&engine, by(&engine, &source, &mk_free(seed, 120)));
            if let Some(text) = text(&engine, &answer) {
                assert!(whole.is_match(&text), "{text:?} is not {pattern}");
            }
        }
    }
}

#[test]
fn choices_of_one_prompt_differ_and_are_all_of_the_list() {
    let engine = start(mk_config(LLAMA));
    let texts = ["a", "ab", "abc", "yes \"quoted\" \u{7f}\n", "né", "no"].map(str::to_owned);
    let source = GrammarSource::Choice(texts.to_vec());
    let grammar = compile(&engine, &source);
    let streams: Vec<_> = (0..16)
        .map(|choice| {
            let mut request = GenerateRequest {
                grammar: Some(grammar.clone()),
                choice,
                ..mk_free(7, 40)
            };
            request.sampling.temperature = 50.0;
            engine.submit(request).expect("a valid request")
        })
        .collect();
    let answers = streams.into_iter().map(collect);
    let mut drawn: Vec<_> = answers
        .map(|answer| text(&engine, &answer).expect("short texts end"))
        .collect();
    assert!(drawn.iter().all(|text| texts.contains(text)), "{drawn:?}");
    drawn.sort();
    drawn.dedup();
    assert!(drawn.len() > 1, "{drawn:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn company_chunks_and_steps_ahead_do_not_matter(
        chunk in prop::option::of(prop::sample::select(vec![64u32, 256])),
        page_size in prop::sample::select(vec![1u32, 16]),
        mates in prop::collection::vec((1..120usize, 1..30u32, any::<bool>()), 1..4),
        overlaps: bool,
        penalised: bool,
    ) {
        let mut request = mk_free(3, 60);
        request.input_ids = mk_prompt(9, 150);
        request.sampling.frequency_penalty = if penalised { 0.3 } else { 0.0 };
        let expected = alone_by(&people(), &request);
        let engine = start(EngineConfig {
            chunked_prefill_size: chunk,
            page_size,
            overlap_schedule: Some(overlaps),
            ..mk_config(LLAMA)
        });
        let mut streams = Vec::new();
        for (seed, (len, new_tokens, is_free)) in (100u32..).zip(mates) {
            let mut mate = mk_unpenalised(&mk_prompt(seed, len), new_tokens);
            mate.logprobs.logprob_start_len = None;
            let alone = crate::harness::alone(&mate);
            if !is_free {
                // Another grammar, whose tokens are of no interest.
                let other = by(&engine, &GrammarSource::JsonObject, &mk_free(u64::from(seed), 30));
                streams.push((engine.submit(other).expect("a valid request"), None));
            }
            streams.push((engine.submit(mate).expect("a valid request"), Some(alone)));
        }
        // The second finds the first one's prefix.
        for _ in 0..2 {
            assert_same(&generate(&engine, by(&engine, &people(), &request)), &expected);
        }
        for (stream, alone) in streams {
            let answer = collect(stream);
            if let Some(alone) = alone {
                assert_same(&answer, &alone);
            }
        }
        assert_nothing_held(&engine);
    }
}

#[test]
fn models_with_recurrent_state_answer_by_grammars() {
    let engine = start(mk_config(QWEN3_5));
    let answer = generate(&engine, by(&engine, &people(), &mk_free(1, 300)));
    if let Some(text) = text(&engine, &answer) {
        serde_json::from_str::<serde_json::Value>(&text).expect("JSON");
    }
}

#[test]
fn an_answer_ends_with_its_grammar_however_long_it_should_be() {
    let engine = start(mk_config(LLAMA));
    let mut request = mk_free(1, 60);
    request.sampling.min_new_tokens = 50;
    for ignore_eos in [false, true] {
        request.sampling.ignore_eos = ignore_eos;
        let done = GrammarSource::Choice(vec!["yes".to_owned()]);
        let answer = generate(&engine, by(&engine, &done, &request));
        assert_eq!(text(&engine, &answer).as_deref(), Some("yes"));
        // Where it need not end, it goes on.
        let endless = GrammarSource::Regex("[ab]*".to_owned());
        let answer = generate(&engine, by(&engine, &endless, &request));
        assert!(answer.token_ids.len() >= 50, "{answer:?}");
        assert!(!ignore_eos || answer.finish == Some(FinishReason::Length));
    }
}

#[test]
fn a_grammar_that_allows_nothing_more_ends_the_answer_with_a_reason() {
    let engine = start(mk_config(LLAMA));
    // An answer may leave `a` out; in one that has begun it, no value can follow.
    let schema = r##"{"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}, "b": {"type": "null"}},
        "required": ["b"], "additionalProperties": false, "$defs": {"x": {"$ref": "#/$defs/x"}}}"##;
    let source = GrammarSource::JsonSchema(schema.to_owned());
    let answers = (0..32).map(|seed| generate(&engine, by(&engine, &source, &mk_free(seed, 200))));
    let ended = answers
        .map(|answer| answer.finish)
        .find_map(|finish| match finish {
            Some(FinishReason::Abort { reason, retriable }) => Some((reason, retriable)),
            Some(FinishReason::Stop { .. } | FinishReason::Length) | None => None,
        });
    let (reason, retriable) = ended.expect("one of the answers begins `a`");
    assert!(
        reason.starts_with("the grammar allows no next token"),
        "{reason}"
    );
    assert!(!retriable);
    assert_nothing_held(&engine);
}

#[test]
fn a_grammar_of_another_engine_is_refused() {
    let [one, other] = [(), ()].map(|()| start(mk_config(LLAMA)));
    let request = by(&one, &people(), &mk_free(1, 20));
    let refused = other.submit(request).map(drop);
    assert_eq!(refused, Err(SubmitError::ForeignGrammar));
}

#[test]
fn grammars_are_compiled_once_and_counted() {
    let engine = start(mk_config(LLAMA));
    for _ in 0..3 {
        compile(&engine, &people());
    }
    let counted = |name| find_metric(&engine, name).map(|count| count.round());
    assert_eq!(counted("pdserve_num_grammar_total"), Some(3.0));
    assert_eq!(counted("pdserve_num_grammar_cache_hit_total"), Some(2.0));
    assert_eq!(counted("pdserve_num_grammar_aborted_total"), Some(0.0));
    let name = "pdserve_grammar_compilation_time_seconds_count";
    assert_eq!(counted(name), Some(1.0));
}

#[test]
fn answers_are_of_their_ebnf_and_tags() {
    let engine = start(mk_config(LLAMA));
    let nested = GrammarSource::Ebnf(r#"root ::= "(" root? ")" | [0-9]{1,3}"#.to_owned());
    let tag = serde_json::json!({
        "structures": [{"begin": "e", "schema": {"enum": [5]}, "end": ";"}],
        "triggers": ["e"],
    });
    let tag = serde_json::from_value(tag).expect("a structural tag");
    let tag = GrammarSource::StructuralTag(tag);
    for seed in 0..8 {
        let answer = generate(&engine, by(&engine, &nested, &mk_free(seed, 100)));
        if let Some(text) = text(&engine, &answer) {
            let open = text.matches('(').count();
            let number = &text[open..text.len() - open];
            assert_eq!(
                text,
                format!("{}{number}{}", "(".repeat(open), ")".repeat(open))
            );
            assert!(number.len() <= 3 && number.bytes().all(|b| b.is_ascii_digit()));
        }
        let answer = generate(&engine, by(&engine, &tag, &mk_free(seed, 100)));
        if let Some(text) = text(&engine, &answer) {
            let calls = text.split('e').skip(1);
            let is_five = |call: &str| call.trim_start().starts_with('5');
            assert!(calls.clone().all(is_five), "{text}");
        }
    }
}
