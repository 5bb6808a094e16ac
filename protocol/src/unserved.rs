//! Paths of OpenAI's, SGLang's and vLLM's APIs that pdserve does not serve, each with the reason and the remedy.
//!
//! Routers and agents answer them with 404: clients of OpenAI's repeat a request that got a 5xx, and balancers count it
//! against the server.

/// What a path asks for, and where it is served instead, or why nowhere.
struct Unserved {
    /// Whole paths, and, with a last slash, all below them.
    paths: &'static [&'static str],
    because: &'static str,
}

/// What clients may call, for answers to paths that are nowhere served.
pub const SERVED: &str = "/v1/chat/completions, /v1/completions, /v1/responses, /generate, /tokenize, /detokenize and \
                          /v1/models";

const TEXT_ONLY: &str = "models here read and write text only";
const NO_VECTORS: &str = "models here generate text, and no embeddings, scores or classes";
const NOTHING_STORED: &str = "nothing of a client is stored here; send each request by itself";
const BELOW_V1: &str = "OpenAI's paths begin with /v1; end the client's base URL with it";
const WHOLE_CHATS: &str = "no conversation is kept; send all its messages to /v1/chat/completions";
const FIXED_WEIGHTS: &str = "weights come from disk: through spec.model.weights of the PDDeployment, or each worker's admin API";
const NO_ADAPTER: &str = "no adapter is loaded; serve the merged model";
const OPERATED: &str = "workers are operated through their admin API";

const UNSERVED: &[Unserved] = &[
    Unserved {
        paths: &[
            "/v1/embeddings",
            "/embeddings",
            "/embed",
            "/encode",
            "/v1/rerank",
            "/v2/rerank",
            "/rerank",
            "/v1/score",
            "/score",
            "/v1/classify",
            "/classify",
            "/v1/decisions",
            "/pooling",
            "/v1/pooling",
            "/v2/embed",
        ],
        because: NO_VECTORS,
    },
    Unserved {
        paths: &[
            "/v1/images/",
            "/v1/audio/",
            "/v1/videos",
            "/v1/videos/",
            "/v1/realtime",
            "/v1/realtime/",
        ],
        because: TEXT_ONLY,
    },
    Unserved {
        paths: &[
            "/v1/batches",
            "/v1/batches/",
            "/v1/files",
            "/v1/files/",
            "/v1/uploads",
            "/v1/uploads/",
            "/v1/vector_stores",
            "/v1/vector_stores/",
            "/v1/containers",
            "/v1/containers/",
        ],
        because: NOTHING_STORED,
    },
    Unserved {
        paths: &[
            "/v1/responses/",
            "/v1/conversations",
            "/v1/conversations/",
            "/v1/assistants",
            "/v1/assistants/",
            "/v1/threads",
            "/v1/threads/",
            "/open_session",
            "/close_session",
        ],
        because: WHOLE_CHATS,
    },
    Unserved {
        paths: &["/v1/moderations"],
        because: "answers are not moderated here",
    },
    Unserved {
        paths: &["/v1/fine_tuning/", "/v1/evals", "/v1/evals/"],
        because: "models are served here, and neither trained nor judged",
    },
    Unserved {
        paths: &["/v1/messages/count_tokens"],
        because: "Anthropic's API is not served; /tokenize counts the tokens of `messages`",
    },
    Unserved {
        paths: &["/v1/messages"],
        because: "Anthropic's API is not served; send OpenAI's `messages` to /v1/chat/completions",
    },
    Unserved {
        paths: &["/api/"],
        because: "Ollama's API is not served; use OpenAI's /v1/chat/completions",
    },
    Unserved {
        paths: &["/invocations", "/ping", "/v1/systemone"],
        because: "SageMaker's API is not served; use /v1/chat/completions and /health",
    },
    Unserved {
        paths: &[
            "/chat/completions",
            "/completions",
            "/models",
            "/models/",
            "/v1/v1/",
        ],
        because: BELOW_V1,
    },
    Unserved {
        paths: &["/v1/engines", "/v1/engines/"],
        because: "OpenAI has replaced engines by models; use /v1/models",
    },
    Unserved {
        paths: &["/abort_request"],
        because: "close a request's connection, and its answer ends",
    },
    Unserved {
        paths: &["/parse_function_call", "/separate_reasoning"],
        because: "/v1/chat/completions has calls and reasoning in fields of their own",
    },
    Unserved {
        paths: &[
            "/load_lora_adapter",
            "/load_lora_adapter_from_tensors",
            "/unload_lora_adapter",
            "/v1/load_lora_adapter",
            "/v1/unload_lora_adapter",
        ],
        because: NO_ADAPTER,
    },
    Unserved {
        paths: &[
            "/update_weights_from_disk",
            "/update_weights_from_tensor",
            "/update_weights_from_distributed",
            "/update_weights_from_ipc",
            "/update_weight_version",
            "/init_weights_update_group",
            "/destroy_weights_update_group",
            "/begin_weight_update",
            "/end_weight_update",
            "/get_weights_by_name",
            "/weights_checker",
            "/release_memory_occupation",
            "/resume_memory_occupation",
            "/sleep",
            "/wake_up",
        ],
        because: FIXED_WEIGHTS,
    },
    Unserved {
        paths: &["/reset_prefix_cache"],
        because: "/flush_cache empties the prefix cache",
    },
    Unserved {
        paths: &["/version", "/load", "/get_load", "/tokenizer_info"],
        because: "/server_info and /metrics say what a worker is and does",
    },
    Unserved {
        paths: &[
            "/start_profile",
            "/stop_profile",
            "/pause_generation",
            "/continue_generation",
            "/set_internal_state",
            "/configure_logging",
            "/set_trace_level",
            "/freeze_gc",
            "/slow_down",
            "/pd_role_switch",
        ],
        because: OPERATED,
    },
];

/// Why `path`, which no route has, is not served, and what is served instead.
pub fn why_not(path: &str) -> String {
    let is_here = |unserved: &&Unserved| {
        let mut paths = unserved.paths.iter();
        paths.any(|known| path == *known || (known.ends_with('/') && path.starts_with(known)))
    };
    match UNSERVED.iter().find(is_here) {
        Some(Unserved { because, .. }) => format!("{because}; served are {SERVED}"),
        None => format!("served are {SERVED}"),
    }
}

#[cfg(test)]
mod tests;
