//! How tokens are sampled and when answers end, beyond OpenAI: SGLang's fields and vLLM's.

use super::super::{Field, Scope, harmless, honoured, refused, refused_unless};
use super::{CHAT, DRAWN, GENERATE, OPENAI, PARAMS, ROUTES, SAMPLING};

const INTERNAL: &str = "SGLang's server sets it for itself; leave it out";
const DRAWS_ALONE: &str = "tokens are drawn one by one; leave it out";
/// A constraint that SGLang accepts on all three routes.
const GRAMMARS: &[Scope] = &[Scope::Chat, Scope::Completions, Scope::SamplingParams];

pub(super) const FIELDS: &[Field] = &[
    honoured(DRAWN, "top_k"),
    honoured(DRAWN, "min_p"),
    honoured(DRAWN, "repetition_penalty"),
    honoured(SAMPLING, "stop_token_ids"),
    honoured(DRAWN, "ignore_eos"),
    honoured(SAMPLING, "skip_special_tokens"),
    honoured(SAMPLING, "no_stop_trim"),
    honoured(OPENAI, "include_stop_str_in_output"),
    honoured(OPENAI, "min_tokens"),
    honoured(PARAMS, "max_new_tokens"),
    honoured(PARAMS, "min_new_tokens"),
    honoured(PARAMS, "sampling_seed"),
    refused(PARAMS, "max_tokens", "did you mean `max_new_tokens`?"),
    refused(
        PARAMS,
        "max_completion_tokens",
        "did you mean `max_new_tokens`?",
    ),
    refused(PARAMS, "min_tokens", "did you mean `min_new_tokens`?"),
    refused(PARAMS, "seed", "did you mean `sampling_seed`?"),
    honoured(SAMPLING, "stop_regex"),
    honoured(GRAMMARS, "regex"),
    honoured(GRAMMARS, "ebnf"),
    honoured(GRAMMARS, "structural_tag"),
    honoured(PARAMS, "json_schema"),
    honoured(OPENAI, "guided_json"),
    honoured(OPENAI, "guided_regex"),
    honoured(OPENAI, "guided_choice"),
    honoured(OPENAI, "guided_grammar"),
    harmless(OPENAI, "guided_decoding_backend", "there is one"),
    refused(
        OPENAI,
        "guided_whitespace_pattern",
        "white space in JSON is a space, or a line break and its indent; leave it out",
    ),
    honoured(OPENAI, "structured_outputs"),
    refused(
        OPENAI,
        "allowed_token_ids",
        "give other tokens a `logit_bias` of -100",
    ),
    refused(
        OPENAI,
        "bad_words",
        "give their tokens a `logit_bias` of -100",
    ),
    refused_unless(&["1"], PARAMS, "beam_width", DRAWS_ALONE),
    refused(OPENAI, "use_beam_search", DRAWS_ALONE),
    harmless(OPENAI, "length_penalty", "of beam search, which is refused"),
    refused(
        CHAT,
        "echo",
        "the answer holds no prompt; use /v1/completions",
    ),
    refused(
        OPENAI,
        "prompt_logprobs",
        "use `echo` with `logprobs` of /v1/completions",
    ),
    refused(
        OPENAI,
        "truncate_prompt_tokens",
        "prompts are not cut; shorten it",
    ),
    refused(OPENAI, "prompt_embeds", "prompts are text or token ids"),
    refused(OPENAI, "logits_processors", "give a `logit_bias`"),
    refused(ROUTES, "custom_logit_processor", "give a `logit_bias`"),
    refused(
        SAMPLING,
        "custom_params",
        "of a custom logit processor, which is refused",
    ),
    refused(
        SAMPLING,
        "watermark",
        "answers carry no watermark; leave it out",
    ),
    refused(
        GENERATE,
        "watermark",
        "answers carry no watermark; leave it out",
    ),
    refused(
        GENERATE,
        "max_thinking_tokens",
        "thinking is not bounded by itself; leave it out",
    ),
    refused(
        GENERATE,
        "require_reasoning",
        "a grammar holds from an answer's first token; leave it out",
    ),
    harmless(
        SAMPLING,
        "spaces_between_special_tokens",
        "no space is put between tokens, as with Hugging Face's fast tokenizers",
    ),
    harmless(PARAMS, "stream_interval", "tokens are sent as they come"),
    refused(PARAMS, "stop_strs", "give them as `stop`"),
    refused(PARAMS, "stop_regex_strs", INTERNAL),
    refused_unless(&["0"], PARAMS, "stop_str_max_len", INTERNAL),
    refused_unless(&["0"], PARAMS, "stop_regex_max_len", INTERNAL),
    refused(PARAMS, "is_normalized", INTERNAL),
    refused(PARAMS, "ebnf_full_assistant", INTERNAL),
];
