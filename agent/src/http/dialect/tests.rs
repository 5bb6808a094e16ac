//! What client libraries check in a refusal.

use super::*;

const CHAT: Dialect = Dialect::openai("messages", "max_completion_tokens");

#[test]
fn an_overlong_prompt_has_openais_code_and_words() {
    let why = SubmitError::PromptExceedsContext {
        prompt_len: 9031,
        limit: 8191,
        context_length: 8192,
    };
    let refusal = CHAT.refusal(&why, 1);
    assert_eq!(refusal.code, Some("context_length_exceeded"));
    assert_eq!(refusal.param.as_deref(), Some("messages"));
    assert_eq!(
        refusal.message,
        "This model's maximum context length is 8192 tokens. However, you requested 9032 tokens \
         (9031 in the messages, 1 in the completion). Please reduce the length of the messages or \
         completion."
    );
}

#[test]
fn an_overlong_answer_names_the_field_that_the_client_sent() {
    let why = SubmitError::AnswerExceedsContext {
        prompt_len: 40,
        max_new_tokens: 9000,
        context_length: 8192,
    };
    let refusal = CHAT.refusal(&why, 9000);
    assert_eq!(refusal.param.as_deref(), Some("max_completion_tokens"));
    assert!(
        refusal
            .message
            .contains("9040 tokens (40 in the messages, 9000 in the completion)")
    );
    let refusal = Dialect::openai("prompt", "max_tokens").refusal(&why, 9000);
    assert_eq!(refusal.param.as_deref(), Some("max_tokens"));
    let refusal = Dialect::generate("text").refusal(&why, 9000);
    assert_eq!(refusal.param.as_deref(), Some("max_new_tokens"));
    assert_eq!(refusal.message, why.to_string());
}

#[test]
fn the_length_of_an_untokenised_text_is_reported_in_bytes() {
    let why = EncodeError::TooLong(TextTooLong {
        bytes: 32_000_000,
        max_tokens: 8192,
    });
    let refusal = CHAT.untokenised(&why, 8192);
    assert_eq!(refusal.code, Some("context_length_exceeded"));
    assert!(
        refusal
            .message
            .starts_with("This model's maximum context length is 8192 tokens.")
    );
    assert!(
        refusal.message.contains("32000000 bytes"),
        "{}",
        refusal.message
    );
    let refusal = Dialect::generate("text").untokenised(&why, 8192);
    assert!(refusal.message.starts_with("the prompt has 32000000 bytes"));
}
