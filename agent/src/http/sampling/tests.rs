//! Defaults and meanings of sampling fields.

use super::*;
use crate::http::body::parse;
use crate::http::openai::OpenAiRequest;

fn openai(json: &str) -> Result<Sampling, ApiError> {
    let mut request: OpenAiRequest<bool> = parse(json.as_bytes()).unwrap();
    Sampling::try_from(&mut request)
}

#[test]
fn absent_fields_have_sglangs_defaults() {
    let sampling = openai("{}").unwrap();
    let defaults = SamplingParams {
        max_new_tokens: None,
        ..SamplingParams::default()
    };
    assert_eq!(sampling.params, defaults);
    assert!(!sampling.no_stop_trim);
}

#[test]
fn the_newer_name_of_a_length_takes_precedence() {
    let sampling = openai(r#"{"max_tokens": 5, "max_completion_tokens": 7}"#).unwrap();
    assert_eq!(sampling.params.max_new_tokens, Some(7));
}

#[test]
fn a_default_length_fits_what_the_context_leaves() {
    let generate = Sampling::try_from(SamplingBody::default()).unwrap();
    assert_eq!(generate.for_prompt(10, 2048).max_new_tokens, Some(128));
    assert_eq!(generate.for_prompt(2000, 2048).max_new_tokens, Some(48));
    let chat = openai("{}").unwrap();
    assert_eq!(chat.for_prompt(48, 2048).max_new_tokens, Some(2000));
    let given = openai(r#"{"max_tokens": 4000}"#).unwrap();
    assert_eq!(
        given.for_prompt(48, 2048).max_new_tokens,
        Some(4000),
        "the engine refuses it"
    );
}

#[test]
fn a_top_p_of_0_leaves_the_likeliest_token() {
    let params = openai(r#"{"top_p": 0, "top_k": 40}"#).unwrap().params;
    assert_eq!((params.top_p, params.top_k), (1.0, 1));
    assert_eq!(params.validate(100), Ok(()));
}

#[test]
fn vllms_name_keeps_the_stop_string_too() {
    let sampling = openai(r#"{"include_stop_str_in_output": true}"#).unwrap();
    assert!(sampling.no_stop_trim);
}

#[test]
fn a_negative_seed_is_a_seed() {
    let sampling = openai(r#"{"seed": -1}"#).unwrap();
    assert_eq!(sampling.params.seed, Some(u64::MAX));
}

#[test]
fn biases_are_named_by_token_ids() {
    let sampling = openai(r#"{"logit_bias": {"50": -1.5}}"#).unwrap();
    assert_eq!(sampling.params.logit_bias, [(50, -1.5)]);
    assert_eq!(
        openai(r#"{"logit_bias": {"the": 1}}"#).unwrap_err().status,
        400
    );
}
