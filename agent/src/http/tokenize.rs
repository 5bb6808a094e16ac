//! `/tokenize` and `/detokenize`: the model's vocabulary as SGLang's and vLLM's clients ask for it. A prompt, or a chat,
//! has the ids that a completion or a chat of the same fields is computed from. Each answer has the fields of both
//! servers.

use super::body::{Body, JsonBody};
use super::dialect::Dialect;
use super::error::ApiError;
use super::fields::Scope;
use super::one_or_many::OneOrMany;
use super::openai::{ChatPrompt, Message, ToolChoice};
use super::openai::{check_model, into_template_messages, offered, parts};
use super::prompt::{Prompt, Prompts};
use crate::service::{App, Service};
use axum::extract::State;
use axum::response::Response;
use pd_engine::text::{EncodeError, TemplateValue};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;

/// Ids that one request may have turned into text, unless the model's context is longer.
const IDS_MAX: usize = 128 << 10;
/// A text of so many bytes, which are as many tokens at most, may exceed the model's context: it takes no more than all
/// texts that are tokenised at once.
const TEXT_BYTES_MAX: usize = 4 << 20;

#[derive(Debug, Deserialize)]
pub(crate) struct TokenizeBody {
    model: Option<String>,
    /// One text or several, as a completion has them; or `messages`.
    prompt: Option<OneOrMany<String>>,
    messages: Option<Vec<Message>>,
    tools: Option<Vec<TemplateValue>>,
    tool_choice: Option<ToolChoice>,
    chat_template_kwargs: Option<Map<String, Value>>,
    reasoning_effort: Option<String>,
    continue_final_message: Option<bool>,
    add_generation_prompt: Option<bool>,
    /// Without it: true for prompts, false for messages, whose template writes them.
    add_special_tokens: Option<bool>,
    /// vLLM's: the answer has each token as the vocabulary spells it, too.
    return_token_strs: Option<bool>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct DetokenizeBody {
    model: Option<String>,
    tokens: Option<Prompts>,
    /// SGLang's; see [`Detokenized`] for answers without it.
    skip_special_tokens: Option<bool>,
}

/// Of several prompts, lists with an element for each.
#[derive(Debug, Serialize)]
struct Tokenized {
    count: OneOrMany<usize>,
    max_model_len: u32,
    tokens: OneOrMany<Vec<u32>>,
    token_strs: Option<OneOrMany<Vec<String>>>,
}

/// Special tokens have text in vLLM's answers, and none in SGLang's unless `skip_special_tokens` is false.
#[derive(Debug, Serialize)]
struct Detokenized {
    /// vLLM's field.
    prompt: OneOrMany<String>,
    /// SGLang's field.
    text: OneOrMany<String>,
}

pub(crate) async fn tokenize(
    State(app): State<Arc<App>>,
    JsonBody(body, share): JsonBody<TokenizeBody>,
) -> Result<Response, ApiError> {
    let service = app.service()?;
    check_model(body.model.as_deref(), &app.served_model_name)?;
    let return_token_strs = body.return_token_strs.unwrap_or(false);
    let special = body.add_special_tokens;
    let add_special_tokens = special.unwrap_or(body.prompt.is_some());
    let field = if body.prompt.is_some() {
        "prompt"
    } else {
        "messages"
    };
    let texts = body.texts(&service)?;
    let is_list = matches!(texts, OneOrMany::Many(_));
    let texts = texts.into_vec();
    parts(texts.len(), 1)?;
    let ids = encode(&service, texts, add_special_tokens, field).await?;
    drop(share);
    let max_model_len = service.engine.info().context_length;
    let tokenizer = Arc::clone(service.engine.tokenizer());
    let count = ids.iter().map(Vec::len).sum();
    let write = move || {
        let strs = |ids: &Vec<u32>| ids.iter().map(|&id| tokenizer.spelling(id)).collect();
        let strs = return_token_strs.then(|| ids.iter().map(strs).collect());
        json(&Tokenized {
            count: alike(ids.iter().map(Vec::len).collect(), is_list),
            max_model_len,
            token_strs: strs.map(|strs| alike(strs, is_list)),
            tokens: alike(ids, is_list),
        })
    };
    service.write(count, write).await
}

pub(crate) async fn detokenize(
    State(app): State<Arc<App>>,
    JsonBody(body, share): JsonBody<DetokenizeBody>,
) -> Result<Response, ApiError> {
    let service = app.service()?;
    check_model(body.model.as_deref(), &app.served_model_name)?;
    let skip_special_tokens = body.skip_special_tokens;
    let (ids, is_list) = body.ids(&service)?;
    drop(share);
    let tokenizer = Arc::clone(service.engine.tokenizer());
    let count = ids.iter().map(Vec::len).sum();
    let write = move || {
        let texts = |skips_special: bool| {
            let texts = ids.iter().map(|ids| tokenizer.decode(ids, skips_special));
            alike(texts.collect(), is_list)
        };
        json(&Detokenized {
            prompt: texts(skip_special_tokens.unwrap_or(false)),
            text: texts(skip_special_tokens.unwrap_or(true)),
        })
    };
    service.write(count, write).await
}

// === impl TokenizeBody ===

impl Body for TokenizeBody {
    const SCOPE: Scope = Scope::Tokenize;
}

impl TokenizeBody {
    /// What is to be tokenised: the prompts, or the chat as the model's template writes it.
    ///
    /// # Errors
    /// 400 unless there are either prompts or messages, and for a chat that cannot be written.
    fn texts(self, service: &Service) -> Result<OneOrMany<String>, ApiError> {
        match (self.prompt, self.messages) {
            (Some(texts), None) => Ok(texts),
            (None, Some(messages)) => {
                let dialect = Dialect::openai("messages", "max_tokens");
                let tools = self.tools.unwrap_or_default();
                let tools = offered(tools, self.tool_choice, &service.answer_forms, dialect)?;
                let chat = ChatPrompt {
                    messages: into_template_messages(Some(messages))?,
                    chat_template_kwargs: self.chat_template_kwargs.unwrap_or_default(),
                    reasoning_effort: self.reasoning_effort,
                    continue_final_message: self.continue_final_message.unwrap_or(false),
                    add_generation_prompt: self.add_generation_prompt,
                };
                let rendered = chat.render(service, &tools, dialect)?;
                Ok(OneOrMany::One(rendered.text))
            }
            (Some(_), Some(_)) => Err(ApiError::field(
                "prompt",
                "give `prompt` or `messages`, not both",
            )),
            (None, None) => Err(ApiError::field("prompt", "give `prompt` or `messages`")),
        }
    }
}

// === impl DetokenizeBody ===

impl Body for DetokenizeBody {
    const SCOPE: Scope = Scope::Detokenize;
}

impl DetokenizeBody {
    /// The ids of each text, and whether they came as a list of lists.
    ///
    /// # Errors
    /// 400 for texts, for too many ids, and for one outside the vocabulary.
    fn ids(self, service: &Service) -> Result<(Vec<Vec<u32>>, bool), ApiError> {
        let wrong = |message: String| ApiError::field("tokens", message);
        let missing = || wrong("`tokens` is missing; give a list of token ids".to_owned());
        let (prompts, is_list) = match self.tokens.ok_or_else(missing)? {
            // An empty list is that of an empty text.
            Prompts::Many(none) if none.is_empty() => (vec![Prompt::Ids(Vec::new())], false),
            Prompts::Many(prompts) => (prompts, true),
            Prompts::One(prompt) => (vec![prompt], false),
        };
        parts(prompts.len(), 1)?;
        let ids = prompts.into_iter().map(|prompt| match prompt {
            Prompt::Ids(ids) => Ok(ids),
            Prompt::Text(_) => Err(wrong(
                "`tokens` has a text; give token ids, or use /tokenize".to_owned(),
            )),
        });
        let ids = ids.collect::<Result<Vec<Vec<u32>>, ApiError>>()?;
        let info = service.engine.info();
        let max = IDS_MAX.max(info.context_length as usize);
        let count: usize = ids.iter().map(Vec::len).sum();
        if count > max {
            return Err(wrong(format!(
                "`tokens` has {count} ids; give at most {max}"
            )));
        }
        match ids.iter().flatten().find(|&&id| id >= info.vocab_size) {
            None => Ok((ids, is_list)),
            Some(id) => Err(wrong(format!(
                "`tokens` has {id}; the vocabulary has {} tokens",
                info.vocab_size
            ))),
        }
    }
}

/// The ids of `texts`, which came in `field`, also where they exceed the model's context: how much is too much is what
/// clients ask.
async fn encode(
    service: &Service,
    texts: Vec<String>,
    add_special_tokens: bool,
    field: &'static str,
) -> Result<Vec<Vec<u32>>, ApiError> {
    let fits = texts.iter().all(|text| text.len() <= TEXT_BYTES_MAX);
    let max = if fits {
        TEXT_BYTES_MAX
    } else {
        service.engine.info().context_length as usize
    };
    let encoded = service.encode_up_to(max, texts, add_special_tokens).await?;
    encoded.map_err(|why| match why {
        EncodeError::TooLong(long) => {
            let bytes = long.bytes;
            let message =
                format!("`{field}` has {bytes} bytes, more than {max} tokens; send it in parts");
            ApiError::field(field, message)
        }
        EncodeError::Unwritable { .. } => ApiError::field(field, why.to_string()),
        EncodeError::Cancelled => ApiError::internal(why.to_string()),
    })
}

/// What was asked for as a list is answered as a list.
fn alike<T>(mut all: Vec<T>, is_list: bool) -> OneOrMany<T> {
    if is_list {
        return OneOrMany::Many(all);
    }
    OneOrMany::One(all.pop().expect("what is no list is one"))
}

fn json(answer: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(answer).expect("answers have string keys, so they are JSON")
}
