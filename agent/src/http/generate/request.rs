//! SGLang's `GenerateReqInput`: every field is one value, or a list with one value per prompt.

use crate::http::body::Body;
use crate::http::bootstrap::{BootstrapBody, BootstrapPort};
use crate::http::dialect::Dialect;
use crate::http::error::ApiError;
use crate::http::fields::Scope;
use crate::http::one_or_many::OneOrMany;
use crate::http::openai::choices;
use crate::http::prompt::{Prompt, Prompts};
use crate::http::sampling::{Sampling, SamplingBody};
use crate::http::token_stream::Item;
use crate::service::Service;
use pd_engine::engine::LogprobOptions;
use pd_protocol::BootstrapRoom;
use pd_protocol::Role;
use pd_protocol::workers::BootstrapFields;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
pub(crate) struct GenerateBody {
    text: Option<OneOrMany<String>>,
    input_ids: Option<Prompts>,
    sampling_params: Option<OneOrMany<SamplingBody>>,
    return_logprob: Option<OneOrMany<bool>>,
    logprob_start_len: Option<OneOrMany<i64>>,
    top_logprobs_num: Option<OneOrMany<u32>>,
    rid: Option<OneOrMany<String>>,
    pub(crate) return_text_in_logprobs: Option<bool>,
    pub(crate) stream: Option<bool>,
    bootstrap_host: Option<OneOrMany<String>>,
    bootstrap_port: Option<OneOrMany<BootstrapPort>>,
    bootstrap_room: Option<OneOrMany<BootstrapRoom>>,
}

/// A parsed body.
#[derive(Debug)]
pub(crate) struct GenerateRequest {
    pub(crate) items: Vec<Item>,
    pub(crate) choices: u32,
    pub(crate) bootstrap: Vec<Option<BootstrapFields>>,
    pub(crate) dialect: Dialect,
    /// Answered as a list: there were several prompts, or several choices.
    pub(crate) batch: bool,
}

/// Spreads one setting over all `len` prompts.
struct Spread {
    len: usize,
}

// === impl GenerateBody ===

impl Body for GenerateBody {
    const SCOPE: Scope = Scope::Generate;
}

impl GenerateBody {
    /// # Errors
    /// 400 for contradictory fields, and for lists whose length differs from the prompts'.
    pub(crate) async fn read(
        mut self,
        service: &Service,
        role: Role,
    ) -> Result<GenerateRequest, ApiError> {
        let dialect = Dialect::generate(match self.text {
            Some(_) => "text",
            None => "input_ids",
        });
        let (prompts, is_list) = self.take_prompts()?;
        let spread = Spread { len: prompts.len() };
        let bodies = self.take_sampling(&spread)?;
        let choices = choices_of(&bodies)?;
        let logprobs = self.take_logprobs(&spread)?;
        let rids = self.take_rids(&spread)?;
        let bootstrap = BootstrapBody {
            host: self.bootstrap_host,
            port: self.bootstrap_port,
            room: self.bootstrap_room,
        };
        let bootstrap = bootstrap.resolve(role, prompts.len() * choices as usize)?;
        let samplings = bodies.into_iter().map(Sampling::try_from);
        let samplings = samplings.collect::<Result<Vec<Sampling>, ApiError>>()?;
        let prompts = Prompt::encode(prompts, service, true, dialect).await?;
        let settings = samplings.into_iter().zip(logprobs).zip(rids);
        let item = |(input_ids, ((sampling, logprobs), rid))| Item {
            rid,
            input_ids,
            sampling,
            logprobs,
        };
        Ok(GenerateRequest {
            items: prompts.into_iter().zip(settings).map(item).collect(),
            dialect,
            choices,
            bootstrap,
            batch: is_list || choices > 1,
        })
    }

    /// The prompts, and whether they came as a list.
    fn take_prompts(&mut self) -> Result<(Vec<Prompt>, bool), ApiError> {
        let (prompts, is_list) = match (self.text.take(), self.input_ids.take()) {
            (None, None) => {
                return Err(ApiError::field("text", "give `text` or `input_ids`"));
            }
            (Some(_), Some(_)) => {
                return Err(ApiError::field(
                    "text",
                    "give `text` or `input_ids`, not both",
                ));
            }
            (Some(text), None) => {
                let is_list = matches!(text, OneOrMany::Many(_));
                let texts = text.into_vec().into_iter();
                (texts.map(Prompt::Text).collect(), is_list)
            }
            (None, Some(ids)) => {
                let is_list = matches!(ids, Prompts::Many(_));
                (ids.into_vec(), is_list)
            }
        };
        if prompts.is_empty() {
            let message = "the list of prompts is empty; give at least one";
            return Err(ApiError::field("text", message));
        }
        Ok((prompts, is_list))
    }

    fn take_sampling(&mut self, spread: &Spread) -> Result<Vec<SamplingBody>, ApiError> {
        let given = self.sampling_params.take();
        spread.over("sampling_params", given, SamplingBody::default())
    }

    fn take_logprobs(&mut self, spread: &Spread) -> Result<Vec<LogprobOptions>, ApiError> {
        let flags = spread.over("return_logprob", self.return_logprob.take(), false)?;
        let starts = spread.over("logprob_start_len", self.logprob_start_len.take(), -1)?;
        let tops = spread.over("top_logprobs_num", self.top_logprobs_num.take(), 0)?;
        let options = flags.into_iter().zip(starts).zip(tops);
        Ok(options
            .map(
                |((return_logprob, start), top_logprobs_num)| LogprobOptions {
                    return_logprob,
                    logprob_start_len: u32::try_from(start).ok().filter(|_| return_logprob),
                    top_logprobs_num: if return_logprob { top_logprobs_num } else { 0 },
                },
            )
            .collect())
    }

    /// The ids of the requests: given ones, or drawn. A single id for several prompts gets their
    /// index.
    fn take_rids(&mut self, spread: &Spread) -> Result<Vec<String>, ApiError> {
        match self.rid.take() {
            Some(OneOrMany::One(rid)) if spread.len > 1 => {
                Ok((0..spread.len).map(|i| format!("{rid}_{i}")).collect())
            }
            Some(given) => spread.over("rid", Some(given), String::new()),
            None => {
                let drawn = || format!("{:032x}", rand::random::<u128>());
                Ok(std::iter::repeat_with(drawn).take(spread.len).collect())
            }
        }
    }
}

// === impl Spread ===

impl Spread {
    fn over<T: Clone>(
        &self,
        field: &'static str,
        given: Option<OneOrMany<T>>,
        default: T,
    ) -> Result<Vec<T>, ApiError> {
        match given {
            None => Ok(vec![default; self.len]),
            Some(OneOrMany::One(one)) => Ok(vec![one; self.len]),
            Some(OneOrMany::Many(many)) if many.len() == self.len => Ok(many),
            Some(OneOrMany::Many(many)) => {
                let (found, wanted) = (many.len(), self.len);
                let message = format!("`{field}` has {found} elements for {wanted} prompts");
                Err(ApiError::field(field, message))
            }
        }
    }
}

/// `n`, which SGLang requires to be equal for all prompts of a request.
fn choices_of(bodies: &[SamplingBody]) -> Result<u32, ApiError> {
    let n = bodies.first().and_then(|body| body.n);
    if bodies.iter().any(|body| body.n != n) {
        let message = "`n` must be the same for every prompt of a request";
        return Err(ApiError::field("sampling_params.n", message));
    }
    choices(n)
}

#[cfg(test)]
mod tests;
