//! A prompt as OpenAI's completions accept it: text, token ids, or a list of either.

use super::dialect::Dialect;
use super::error::ApiError;
use crate::service::Service;
use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use std::fmt;

/// One item of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Prompt {
    Text(String),
    Ids(Vec<u32>),
}

/// `prompt`: one item, or a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Prompts {
    One(Prompt),
    Many(Vec<Prompt>),
}

/// An element of a list: a token id, or a prompt.
#[derive(Debug)]
enum Element {
    Text(String),
    Id(u32),
    Ids(Vec<u32>),
}

// === impl Prompt ===

impl Prompt {
    /// The token ids of each prompt.
    ///
    /// # Errors
    /// 400 when a text is too long or cannot be tokenised.
    pub(crate) async fn encode(
        prompts: Vec<Self>,
        service: &Service,
        add_special_tokens: bool,
        dialect: Dialect,
    ) -> Result<Vec<Vec<u32>>, ApiError> {
        let mut ids = Vec::with_capacity(prompts.len());
        let mut texts = Vec::new();
        for (index, prompt) in prompts.into_iter().enumerate() {
            match prompt {
                Self::Ids(given) => ids.push(given),
                Self::Text(text) => {
                    ids.push(Vec::new());
                    texts.push((index, text));
                }
            }
        }
        let (places, texts): (Vec<usize>, Vec<String>) = texts.into_iter().unzip();
        let encoded = service.encode(texts, add_special_tokens, dialect).await?;
        for (place, encoded) in places.into_iter().zip(encoded) {
            ids[place] = encoded;
        }
        Ok(ids)
    }
}

// === impl Prompts ===

impl Prompts {
    pub(crate) fn into_vec(self) -> Vec<Prompt> {
        match self {
            Self::One(prompt) => vec![prompt],
            Self::Many(prompts) => prompts,
        }
    }
}

impl<'de> Deserialize<'de> for Prompts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PromptsVisitor)
    }
}

struct PromptsVisitor;

impl<'de> Visitor<'de> for PromptsVisitor {
    type Value = Prompts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, a list of token ids, or a list of either")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Prompts, E> {
        Ok(Prompts::One(Prompt::Text(text.to_owned())))
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Prompts, E> {
        Ok(Prompts::One(Prompt::Text(text)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Prompts, A::Error> {
        let mixed = "a list may hold token ids or prompts, but not both";
        match seq.next_element()? {
            None => Ok(Prompts::Many(Vec::new())),
            Some(Element::Id(first)) => {
                let mut ids = vec![first];
                while let Some(element) = seq.next_element()? {
                    match element {
                        Element::Id(id) => ids.push(id),
                        Element::Text(_) | Element::Ids(_) => return Err(A::Error::custom(mixed)),
                    }
                }
                Ok(Prompts::One(Prompt::Ids(ids)))
            }
            Some(first) => {
                let mut prompts = Vec::new();
                let mut next = Some(first);
                while let Some(element) = next {
                    prompts.push(match element {
                        Element::Text(text) => Prompt::Text(text),
                        Element::Ids(ids) => Prompt::Ids(ids),
                        Element::Id(_) => return Err(A::Error::custom(mixed)),
                    });
                    next = seq.next_element()?;
                }
                Ok(Prompts::Many(prompts))
            }
        }
    }
}

impl<'de> Deserialize<'de> for Element {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ElementVisitor)
    }
}

struct ElementVisitor;

impl<'de> Visitor<'de> for ElementVisitor {
    type Value = Element;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, a token id, or a list of token ids")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Element, E> {
        Ok(Element::Text(text.to_owned()))
    }

    fn visit_u64<E: Error>(self, id: u64) -> Result<Element, E> {
        let too_large = |_| E::custom(format_args!("token id {id} does not fit 32 bits"));
        u32::try_from(id).map(Element::Id).map_err(too_large)
    }

    fn visit_i64<E: Error>(self, id: i64) -> Result<Element, E> {
        Err(E::custom(format_args!("token id {id} is negative")))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Element, A::Error> {
        let mut ids = Vec::new();
        while let Some(id) = seq.next_element()? {
            ids.push(id);
        }
        Ok(Element::Ids(ids))
    }
}

#[cfg(test)]
mod tests;
