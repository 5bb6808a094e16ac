//! Each parameter's range, and the words of its refusal.

use super::*;

fn error_of(change: impl FnOnce(&mut SamplingParams)) -> String {
    let mut params = SamplingParams::default();
    change(&mut params);
    params.validate(100).expect_err("out of range").to_string()
}

#[test]
fn defaults_are_valid() {
    assert_eq!(SamplingParams::default().validate(1), Ok(()));
}

#[test]
fn nan_is_refused_by_name() {
    assert_eq!(
        error_of(|p| p.temperature = f32::NAN),
        "temperature is NaN; give a finite number of at least 0"
    );
    assert_eq!(
        error_of(|p| p.top_p = f32::NAN),
        "top_p is NaN; give a number above 0, at most 1"
    );
    assert!(error_of(|p| p.logit_bias = vec![(1, f32::NAN)]).starts_with("logit_bias is NaN"));
}

#[test]
fn infinite_and_negative_values_are_refused() {
    assert!(error_of(|p| p.temperature = f32::INFINITY).starts_with("temperature is inf"));
    assert!(error_of(|p| p.temperature = -1.0).starts_with("temperature is -1"));
    assert!(error_of(|p| p.top_k = 0).starts_with("top_k is 0"));
    assert!(error_of(|p| p.top_k = -2).starts_with("top_k is -2"));
    assert!(error_of(|p| p.min_p = 1.5).contains("from 0 to 1"));
    assert!(error_of(|p| p.repetition_penalty = 0.0).starts_with("repetition_penalty is 0"));
}

#[test]
fn lengths_must_agree() {
    assert_eq!(
        error_of(|p| (p.max_new_tokens, p.min_new_tokens) = (Some(3), 4)),
        "min_new_tokens is 4, more than max_new_tokens 3"
    );
}

#[test]
fn tokens_must_be_in_the_vocabulary() {
    assert!(error_of(|p| p.stop_token_ids = vec![100]).starts_with("stop_token_ids contains 100;"));
    assert!(error_of(|p| p.logit_bias = vec![(100, 1.0)]).contains("token 100"));
}

#[test]
fn an_empty_stop_string_is_refused() {
    assert!(error_of(|p| p.stop = vec![String::new()]).contains("empty"));
}
