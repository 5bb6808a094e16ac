//! Fields that only `/v1/responses` has, and names of chats that it has others for.

use super::super::{Field, harmless, honoured, refused, refused_unless};
use super::{RESPONSE_REASONING, RESPONSE_TEXT, RESPONSES};

const NOT_STORED: &str = "no answer is stored; send the whole conversation as `input`";
const UNCUT: &str = "the input is not cut; shorten it";

pub(super) const FIELDS: &[Field] = &[
    honoured(RESPONSES, "input"),
    honoured(RESPONSES, "instructions"),
    honoured(RESPONSES, "max_output_tokens"),
    honoured(RESPONSES, "include"),
    honoured(RESPONSES, "text"),
    honoured(RESPONSES, "reasoning"),
    honoured(RESPONSES, "store"),
    honoured(RESPONSES, "metadata"),
    honoured(RESPONSES, "user"),
    refused(RESPONSES, "previous_response_id", NOT_STORED),
    refused(RESPONSES, "conversation", NOT_STORED),
    refused(
        RESPONSES,
        "background",
        "answers are not stored, so none can be fetched later; stream it",
    ),
    refused(
        RESPONSES,
        "prompt",
        "no prompt is stored; give `instructions` and `input`",
    ),
    refused_unless(&[r#""disabled""#], RESPONSES, "truncation", UNCUT),
    refused(RESPONSES, "context_management", UNCUT),
    harmless(
        RESPONSES,
        "max_tool_calls",
        "bounds hosted tools, which are refused",
    ),
    harmless(
        RESPONSES,
        "stream_options",
        "events carry no padding; the last one has the usage",
    ),
    refused(
        RESPONSES,
        "messages",
        "give them as `input`, or use /v1/chat/completions",
    ),
    refused(RESPONSES, "max_tokens", "give it as `max_output_tokens`"),
    refused(
        RESPONSES,
        "max_completion_tokens",
        "give it as `max_output_tokens`",
    ),
    refused(RESPONSES, "response_format", "give it as `text.format`"),
    refused(
        RESPONSES,
        "reasoning_effort",
        "give it as `reasoning.effort`",
    ),
    honoured(RESPONSE_TEXT, "format"),
    refused_unless(
        &[r#""medium""#],
        RESPONSE_TEXT,
        "verbosity",
        "no model here knows it; ask for short or long answers in a message",
    ),
    honoured(RESPONSE_REASONING, "effort"),
    harmless(
        RESPONSE_REASONING,
        "summary",
        "the answer has the reasoning itself",
    ),
    harmless(
        RESPONSE_REASONING,
        "generate_summary",
        "the answer has the reasoning itself",
    ),
    refused_unless(
        &[r#""auto""#],
        RESPONSE_REASONING,
        "context",
        "the chat template says which reasoning a model sees again; leave it out",
    ),
    refused_unless(
        &[r#""standard""#],
        RESPONSE_REASONING,
        "mode",
        "no model here knows it; give an `effort`",
    ),
];
