//! Fields of `/tokenize` and `/detokenize`, SGLang's and vLLM's.

use super::super::{Field, Scope, harmless, honoured, refused};
use super::TEXT_ONLY;

const TOKENIZE: &[Scope] = &[Scope::Tokenize];
const DETOKENIZE: &[Scope] = &[Scope::Detokenize];
const BOTH: &[Scope] = &[Scope::Tokenize, Scope::Detokenize];

pub(super) const FIELDS: &[Field] = &[
    honoured(BOTH, "model"),
    honoured(TOKENIZE, "prompt"),
    honoured(TOKENIZE, "messages"),
    honoured(TOKENIZE, "tools"),
    honoured(TOKENIZE, "tool_choice"),
    honoured(TOKENIZE, "reasoning_effort"),
    honoured(TOKENIZE, "chat_template_kwargs"),
    honoured(TOKENIZE, "continue_final_message"),
    honoured(TOKENIZE, "add_generation_prompt"),
    honoured(TOKENIZE, "add_special_tokens"),
    honoured(TOKENIZE, "return_token_strs"),
    honoured(DETOKENIZE, "tokens"),
    honoured(DETOKENIZE, "skip_special_tokens"),
    refused(
        TOKENIZE,
        "chat_template",
        "the model's own template writes the prompt; give its text as `prompt`",
    ),
    refused(TOKENIZE, "media_io_kwargs", TEXT_ONLY),
    harmless(
        TOKENIZE,
        "mm_processor_kwargs",
        "of images, video or audio, which are refused",
    ),
    // Names that clients give where another API has them.
    refused(TOKENIZE, "text", "give it as `prompt`"),
    refused(TOKENIZE, "tokens", "use /detokenize"),
    refused(DETOKENIZE, "prompt", "use /tokenize"),
    refused(DETOKENIZE, "token_ids", "give them as `tokens`"),
];
