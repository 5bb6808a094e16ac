//! Any body at any route that takes one: refused with words that a client can read, or sampling parameters that the engine
//! checks.

use super::body::{Body, parse};
use super::generate::request::GenerateBody;
use super::openai::OpenAiRequest;
use super::openai::responses::ResponsesRequest;
use super::sampling::Sampling;
use super::tokenize::{DetokenizeBody, TokenizeBody};
use axum::response::IntoResponse;
use pd_fuzz::{Memory, fuzz};
use pd_protocol::Role;

/// An element of a list of prompts takes 32 bytes for two of its own, and lists grow by doubling.
const MEMORY: Memory = Memory {
    base: 256 << 10,
    per_byte: 256,
};

fn read<T: Body>(bytes: &[u8]) -> Option<T> {
    match parse(bytes) {
        Ok(body) => Some(body),
        Err(refusal) => {
            assert!(refusal.into_response().status().is_client_error());
            None
        }
    }
}

fn check(sampling: &Sampling) {
    let params = sampling.for_prompt(7, 100);
    if params.validate(1000).is_ok() {
        assert!(params.max_new_tokens.is_some());
        assert!(params.temperature.is_finite() && params.top_p > 0.0 && params.top_p <= 1.0);
        assert!(params.stop_token_ids.iter().all(|id| *id < 1000));
        assert!(
            params
                .logit_bias
                .iter()
                .all(|(id, bias)| *id < 1000 && bias.is_finite())
        );
    }
}

#[test]
fn request_body() {
    fuzz!("request_body", MEMORY, |bytes| {
        if let Some(body) = read::<GenerateBody>(bytes)
            && let Ok(understood) = body.understand(Role::Unified)
        {
            let prompts = understood.prompts.len();
            assert_eq!(understood.settings.len(), prompts);
            assert_eq!(
                understood.bootstrap.len(),
                prompts * understood.choices as usize
            );
            for settings in &understood.settings {
                check(&settings.sampling);
            }
        }
        if let Some(mut chat) = read::<OpenAiRequest<bool>>(bytes) {
            if let Ok(choices) = chat.choices() {
                assert!((1..=128).contains(&choices));
            }
            let _ = Sampling::try_from(&mut chat).map(|sampling| check(&sampling));
        }
        if let Some(responses) = read::<ResponsesRequest>(bytes) {
            match responses.into_chat() {
                Ok((mut chat, _)) => {
                    assert!(!chat.messages.is_empty());
                    let _ = Sampling::try_from(&mut chat.settings).map(|sampling| check(&sampling));
                }
                Err(refusal) => assert!(refusal.status.is_client_error()),
            }
        }
        let _ = read::<TokenizeBody>(bytes);
        let _ = read::<DetokenizeBody>(bytes);
        if let Some(mut completions) = read::<OpenAiRequest<u32>>(bytes) {
            let _ = Sampling::try_from(&mut completions).map(|sampling| check(&sampling));
        }
    });
}
