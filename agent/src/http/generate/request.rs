//! SGLang's `GenerateReqInput`: every field is one value, or a list with one value per prompt.

use crate::http::body::Body;
use crate::http::bootstrap::{BootstrapBody, BootstrapPort};
use crate::http::constraint::Constraint;
use crate::http::dialect::Dialect;
use crate::http::error::ApiError;
use crate::http::fields::Scope;
use crate::http::one_or_many::OneOrMany;
use crate::http::openai::{check_rid, choices, parts};
use crate::http::prompt::{Prompt, Prompts};
use crate::http::sampling::{Sampling, SamplingBody};
use crate::http::token_stream::Item;
use crate::service::Service;
use pd_engine::engine::LogprobOptions;
use pd_engine::grammar::Grammar;
use pd_protocol::BootstrapRoom;
use pd_protocol::Role;
use pd_protocol::workers::BootstrapFields;
use serde::Deserialize;
use std::sync::Arc;

#[derive(Debug, Deserialize)]
pub(crate) struct GenerateBody {
    text: Option<OneOrMany<String>>,
    input_ids: Option<Prompts>,
    sampling_params: Option<OneOrMany<SamplingBody>>,
    return_logprob: Option<OneOrMany<bool>>,
    logprob_start_len: Option<OneOrMany<i64>>,
    top_logprobs_num: Option<OneOrMany<u32>>,
    /// Ids, of all prompts; or a list of ids for each.
    token_ids_logprob: Option<OneOrMany<OneOrMany<u32>>>,
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

/// A body whose texts are still to be tokenised.
#[derive(Debug)]
pub(crate) struct Understood {
    pub(crate) prompts: Vec<Prompt>,
    /// Of each prompt.
    pub(crate) settings: Vec<Settings>,
    pub(crate) choices: u32,
    pub(crate) bootstrap: Vec<Option<BootstrapFields>>,
    dialect: Dialect,
    batch: bool,
}

/// What a request says of a prompt.
#[derive(Debug)]
pub(crate) struct Settings {
    rid: String,
    pub(crate) sampling: Arc<Sampling>,
    /// Shared where the parameters are.
    constraint: Option<Arc<Constraint>>,
    logprobs: LogprobOptions,
}

/// `sampling_params` of prompts that share them.
#[derive(Clone, Debug)]
struct Params {
    sampling: Arc<Sampling>,
    constraint: Option<Arc<Constraint>>,
}

/// Spreads one setting over all `len` prompts.
struct Spread {
    len: usize,
}

// === impl Params ===

impl TryFrom<SamplingBody> for Params {
    type Error = ApiError;

    fn try_from(mut body: SamplingBody) -> Result<Self, ApiError> {
        let constraint = body.take_constraint()?;
        Ok(Self {
            sampling: Arc::new(Sampling::try_from(body)?),
            constraint: constraint.map(Arc::new),
        })
    }
}

// === impl GenerateBody ===

impl Body for GenerateBody {
    const SCOPE: Scope = Scope::Generate;
}

impl GenerateBody {
    /// # Errors
    /// 400 for contradictory fields, and for lists whose length differs from the prompts'.
    pub(crate) async fn read(
        self,
        service: &Service,
        role: Role,
    ) -> Result<GenerateRequest, ApiError> {
        let Understood {
            prompts,
            settings,
            choices,
            bootstrap,
            dialect,
            batch,
        } = self.understand(role)?;
        let prompts = Prompt::encode(prompts, service, true, dialect).await?;
        let grammars = grammars(&settings, service).await?;
        let item = |((input_ids, settings), grammar): ((_, Settings), _)| Item {
            rid: settings.rid,
            input_ids,
            sampling: settings.sampling,
            logprobs: settings.logprobs,
            grammar,
        };
        Ok(GenerateRequest {
            items: prompts
                .into_iter()
                .zip(settings)
                .zip(grammars)
                .map(item)
                .collect(),
            dialect,
            choices,
            bootstrap,
            batch,
        })
    }

    /// All but the tokens of texts.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(crate) fn understand(mut self, role: Role) -> Result<Understood, ApiError> {
        let dialect = Dialect::generate(match self.text {
            Some(_) => "text",
            None => "input_ids",
        });
        let (prompts, is_list) = self.take_prompts()?;
        let len = parts(prompts.len(), 1)?;
        let spread = Spread { len };
        let (choices, params) = self.take_params(&spread)?;
        let parts = parts(len, choices)?;
        let logprobs = self.take_logprobs(&spread)?;
        let rids = self.take_rids(&spread)?;
        let bootstrap = BootstrapBody {
            host: self.bootstrap_host,
            port: self.bootstrap_port,
            room: self.bootstrap_room,
        };
        let settings = params.into_iter().zip(logprobs).zip(rids);
        let settings = settings.map(|((params, logprobs), rid)| Settings {
            rid,
            sampling: params.sampling,
            constraint: params.constraint,
            logprobs,
        });
        Ok(Understood {
            prompts,
            settings: settings.collect(),
            choices,
            bootstrap: bootstrap.resolve(role, parts)?,
            dialect,
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

    /// `n`, and the parameters of each prompt.
    fn take_params(&mut self, spread: &Spread) -> Result<(u32, Vec<Params>), ApiError> {
        let given = self.sampling_params.take();
        let bodies = match given.unwrap_or(OneOrMany::One(SamplingBody::default())) {
            OneOrMany::One(body) => {
                let choices = choices(body.n)?;
                return Ok((choices, vec![Params::try_from(body)?; spread.len]));
            }
            many => spread.over("sampling_params", Some(many), SamplingBody::default())?,
        };
        let choices = choices_of(&bodies)?;
        let params = bodies.into_iter().map(Params::try_from);
        Ok((choices, params.collect::<Result<_, ApiError>>()?))
    }

    fn take_logprobs(&mut self, spread: &Spread) -> Result<Vec<LogprobOptions>, ApiError> {
        let flags = spread.over("return_logprob", self.return_logprob.take(), false)?;
        let starts = spread.over("logprob_start_len", self.logprob_start_len.take(), -1)?;
        let tops = spread.over("top_logprobs_num", self.top_logprobs_num.take(), 0)?;
        let token_ids = self.take_token_ids(spread)?;
        let options = flags.into_iter().zip(starts).zip(tops).zip(token_ids);
        let options = options.map(|(((return_logprob, start), top_logprobs_num), token_ids)| {
            let given = LogprobOptions {
                return_logprob,
                logprob_start_len: u32::try_from(start).ok(),
                top_logprobs_num,
                token_ids_logprob: token_ids,
            };
            if return_logprob {
                given
            } else {
                LogprobOptions::default()
            }
        });
        Ok(options.collect())
    }

    fn take_token_ids(&mut self, spread: &Spread) -> Result<Vec<Arc<[u32]>>, ApiError> {
        const FIELD: &str = "token_ids_logprob";
        let shared = |ids: Vec<u32>| OneOrMany::One(Arc::from(ids));
        let id = |given: &OneOrMany<u32>| match given {
            OneOrMany::One(id) => Some(*id),
            OneOrMany::Many(_) => None,
        };
        let list = |given: OneOrMany<u32>| match given {
            OneOrMany::One(_) => None,
            OneOrMany::Many(ids) => Some(Arc::from(ids)),
        };
        let ids = match self.token_ids_logprob.take() {
            None => None,
            Some(OneOrMany::One(id)) => Some(shared(id.into_vec())),
            Some(OneOrMany::Many(given)) => Some(match given.iter().map(id).collect() {
                Some(ids) => shared(ids),
                None => {
                    let lists: Option<_> = given.into_iter().map(list).collect();
                    OneOrMany::Many(lists.ok_or_else(|| {
                        let message = "`token_ids_logprob` mixes ids and lists of ids; give one list, or one for each \
                                       prompt";
                        ApiError::field(FIELD, message)
                    })?)
                }
            }),
        };
        spread.over(FIELD, ids, Arc::default())
    }

    /// The ids of the requests: given ones, or drawn. A single id for several prompts gets their
    /// index.
    fn take_rids(&mut self, spread: &Spread) -> Result<Vec<String>, ApiError> {
        match self.rid.take() {
            Some(OneOrMany::One(rid)) if spread.len > 1 => {
                check_rid(&rid)?;
                Ok((0..spread.len).map(|i| format!("{rid}_{i}")).collect())
            }
            Some(given) => {
                let rids = spread.over("rid", Some(given), String::new())?;
                rids.iter().try_for_each(|rid| check_rid(rid))?;
                Ok(rids)
            }
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

/// The grammar of each prompt's answers; prompts that share their parameters share it.
async fn grammars(
    settings: &[Settings],
    service: &Service,
) -> Result<Vec<Option<Grammar>>, ApiError> {
    let mut grammars = Vec::with_capacity(settings.len());
    let mut last: Option<(&Arc<Constraint>, Grammar)> = None;
    for Settings { constraint, .. } in settings {
        grammars.push(match (constraint, &last) {
            (None, _) => None,
            (Some(constraint), Some((before, grammar))) if Arc::ptr_eq(before, constraint) => {
                Some(grammar.clone())
            }
            (Some(constraint), _) => {
                let grammar = Constraint::clone(constraint).compile(service).await?;
                last = Some((constraint, grammar.clone()));
                Some(grammar)
            }
        });
    }
    Ok(grammars)
}

#[cfg(test)]
mod tests;
