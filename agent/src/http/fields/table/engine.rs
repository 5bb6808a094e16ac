//! What SGLang and vLLM add around sampling: prompts, templates, adapters, sessions, what answers
//! return, and the plumbing between their processes.

use super::super::{Field, harmless, honoured, refused, refused_unless};
use super::{CHAT, COMPLETIONS, GENERATE, OPENAI, ROUTED, ROUTES, TEMPLATED, TEXT_ONLY};

const ONE_MODEL: &str = "no adapter is loaded; leave it out, or serve the merged model";
const SESSIONLESS: &str = "no session is kept; send the whole prompt";
const SHARED_CACHE: &str = "one prefix cache serves all requests; leave it out";
const ONE_RANK: &str = "this worker has one data-parallel rank; leave it out";
const NOT_RETURNED: &str = "answers do not hold it; leave it out";
const SAMPLED_AS_GIVEN: &str = "log probabilities are the model's own; leave it out";
const TEXT_PROMPTS: &str = "of images, video or audio, which are refused";

pub(super) const FIELDS: &[Field] = &[
    honoured(GENERATE, "text"),
    honoured(GENERATE, "input_ids"),
    honoured(GENERATE, "sampling_params"),
    honoured(GENERATE, "return_logprob"),
    honoured(GENERATE, "logprob_start_len"),
    honoured(GENERATE, "top_logprobs_num"),
    honoured(GENERATE, "token_ids_logprob"),
    honoured(GENERATE, "return_text_in_logprobs"),
    honoured(GENERATE, "stream"),
    honoured(ROUTES, "rid"),
    honoured(ROUTED, "bootstrap_host"),
    honoured(ROUTED, "bootstrap_port"),
    honoured(ROUTED, "bootstrap_room"),
    honoured(TEMPLATED, "chat_template_kwargs"),
    honoured(CHAT, "continue_final_message"),
    honoured(CHAT, "add_generation_prompt"),
    honoured(OPENAI, "add_special_tokens"),
    honoured(OPENAI, "return_token_ids"),
    refused(
        CHAT,
        "chat_template",
        "the model's own template writes the prompt; use /v1/completions",
    ),
    refused(CHAT, "documents", "give it in `chat_template_kwargs`"),
    refused(
        CHAT,
        "thinking",
        "give `reasoning_effort` or `chat_template_kwargs`",
    ),
    refused(
        CHAT,
        "reasoning",
        "give `reasoning_effort` or `chat_template_kwargs`",
    ),
    refused(CHAT, "task", "no model here knows it; leave it out"),
    refused(
        CHAT,
        "input_ids",
        "give them as `prompt` of /v1/completions",
    ),
    honoured(CHAT, "separate_reasoning"),
    honoured(CHAT, "stream_reasoning"),
    honoured(CHAT, "include_reasoning"),
    refused(
        GENERATE,
        "input_embeds",
        "prompts are `text` or `input_ids`",
    ),
    refused(
        GENERATE,
        "positional_embed_overrides",
        "prompts are `text` or `input_ids`",
    ),
    refused(GENERATE, "image_data", TEXT_ONLY),
    refused(GENERATE, "video_data", TEXT_ONLY),
    refused(GENERATE, "audio_data", TEXT_ONLY),
    refused_unless(&[r#""text""#], GENERATE, "modalities", TEXT_ONLY),
    refused(GENERATE, "mm_hashes", TEXT_ONLY),
    refused(GENERATE, "mm_content_hashes", TEXT_ONLY),
    refused(GENERATE, "encoder_urls", TEXT_ONLY),
    refused(ROUTES, "lora_path", ONE_MODEL),
    refused(GENERATE, "lora_id", ONE_MODEL),
    refused(ROUTES, "session_id", SESSIONLESS),
    refused(ROUTES, "session_params", SESSIONLESS),
    refused(ROUTES, "cache_salt", SHARED_CACHE),
    refused(ROUTES, "extra_key", SHARED_CACHE),
    refused_unless(&["0"], ROUTES, "routed_dp_rank", ONE_RANK),
    refused_unless(&["0"], ROUTES, "data_parallel_rank", ONE_RANK),
    refused_unless(&["0"], ROUTES, "disagg_prefill_dp_rank", ONE_RANK),
    refused(ROUTES, "return_hidden_states", NOT_RETURNED),
    refused(ROUTES, "return_routed_experts", NOT_RETURNED),
    refused(ROUTES, "return_prompt_token_ids", NOT_RETURNED),
    refused(GENERATE, "return_indexer_topk", NOT_RETURNED),
    refused(GENERATE, "return_bytes", NOT_RETURNED),
    refused(GENERATE, "return_entropy", NOT_RETURNED),
    refused(
        OPENAI,
        "return_cached_tokens_details",
        "read `usage.prompt_tokens_details`",
    ),
    refused(OPENAI, "return_spec_tokens_details", NOT_RETURNED),
    refused(
        OPENAI,
        "return_tokens_as_token_ids",
        "set `return_token_ids`",
    ),
    refused(CHAT, "return_meta_info", "use /generate"),
    refused(CHAT, "return_input_ids_in_sglext", NOT_RETURNED),
    refused(
        CHAT,
        "return_output_ids_in_sglext",
        "set `return_token_ids`",
    ),
    refused(ROUTES, "return_sampling_mask", NOT_RETURNED),
    refused(ROUTES, "sampling_logprobs_mode", SAMPLED_AS_GIVEN),
    refused(ROUTES, "return_flat_raw_top_logprobs", NOT_RETURNED),
    refused(ROUTES, "return_flat_raw_output_top_logprobs", NOT_RETURNED),
    refused(
        GENERATE,
        "multi_item_delimiter_indices",
        "send each item as a prompt of its own",
    ),
    refused(GENERATE, "token_indices_to_pool", NOT_RETURNED),
    refused(
        GENERATE,
        "background",
        "answers are not stored; leave it out",
    ),
    refused(
        OPENAI,
        "kv_transfer_params",
        "the router gives `bootstrap_room`; send requests to it",
    ),
    refused(
        OPENAI,
        "vllm_xargs",
        "no custom extension is loaded; leave it out",
    ),
    refused(
        COMPLETIONS,
        "chat_template_kwargs",
        "prompts are taken as they are; use /v1/chat/completions",
    ),
];

/// Fields that change no answer.
pub(super) const PLUMBING: &[Field] = &[
    harmless(ROUTES, "use_audio_in_video", TEXT_PROMPTS),
    harmless(ROUTES, "video_config", TEXT_PROMPTS),
    harmless(ROUTES, "images_config", TEXT_PROMPTS),
    harmless(ROUTES, "mm_processor_kwargs", TEXT_PROMPTS),
    harmless(ROUTES, "max_dynamic_patch", TEXT_PROMPTS),
    harmless(ROUTES, "min_dynamic_patch", TEXT_PROMPTS),
    harmless(GENERATE, "image_max_dynamic_patch", TEXT_PROMPTS),
    harmless(GENERATE, "video_max_dynamic_patch", TEXT_PROMPTS),
    harmless(GENERATE, "need_wait_for_mm_inputs", TEXT_PROMPTS),
    harmless(GENERATE, "num_items_assigned", TEXT_PROMPTS),
    harmless(
        ROUTES,
        "routed_experts_start_len",
        "of `return_routed_experts`, which is refused",
    ),
    harmless(
        ROUTES,
        "return_flat_raw_top_logprobs_b64",
        "of flat log probabilities, which are refused",
    ),
    harmless(
        ROUTES,
        "priority",
        "requests are served as they come, as SGLang does by default",
    ),
    harmless(
        ROUTES,
        "custom_labels",
        "labels of SGLang's metrics; ours have no client's",
    ),
    harmless(OPENAI, "request_id", "answers are named by `rid`"),
    harmless(GENERATE, "log_metrics", "every request is counted"),
    harmless(GENERATE, "no_logs", "no request's text is logged"),
    harmless(
        GENERATE,
        "external_trace_header",
        "requests are traced by their room",
    ),
    harmless(GENERATE, "received_time", "times are this worker's own"),
    harmless(
        GENERATE,
        "kv_hints",
        "hints to a cache, which make no other answer",
    ),
    harmless(GENERATE, "routing_key", "the router has chosen this worker"),
    harmless(
        GENERATE,
        "conversation_id",
        "the router has chosen this worker",
    ),
    harmless(GENERATE, "http_worker_ipc", "of SGLang's own processes"),
    harmless(GENERATE, "bootstrap_pair_key", "of SGLang's own processes"),
    harmless(
        GENERATE,
        "decode_tp_size",
        "decode reports its ranks to prefill itself",
    ),
];
