//! What an answer must be, as requests say it: OpenAI's `response_format`, SGLang's fields and vLLM's, of which one request
//! gives at most one.

use super::error::ApiError;
use crate::service::Service;
use pd_answers::ThoughtFrame;
use pd_engine::grammar::{Calls, Grammar, GrammarSource, StructuralTag, Tag, Thought};
use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny};
use serde_json::{Map, Value};

/// A constraint, and the field that gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Constraint {
    field: &'static str,
    source: GrammarSource,
}

/// OpenAI's `response_format`, and SGLang's addition to it.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum ResponseFormat {
    Text {},
    JsonObject {},
    JsonSchema {
        json_schema: NamedSchema,
    },
    StructuralTag {
        structures: Vec<Tag>,
        triggers: Vec<String>,
    },
}

#[derive(Debug, Deserialize)]
pub(crate) struct NamedSchema {
    schema: Option<Value>,
}

/// A JSON object, or the text of JSON.
#[derive(Clone, Debug)]
pub(crate) struct JsonText(String);

/// vLLM's `structured_outputs`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StructuredOutputs {
    json: Option<JsonText>,
    regex: Option<String>,
    choice: Option<Vec<String>>,
    grammar: Option<String>,
    json_object: Option<bool>,
    structural_tag: Option<JsonText>,
    /// Whether JSON may be spread over lines; it may here.
    #[serde(rename = "disable_any_whitespace")]
    _disable_any_whitespace: Option<IgnoredAny>,
}

/// The fields of SGLang and vLLM, as far as a body has them.
#[derive(Debug, Default)]
pub(crate) struct Given {
    pub(crate) response_format: Option<ResponseFormat>,
    pub(crate) json_schema: Option<JsonText>,
    pub(crate) regex: Option<String>,
    pub(crate) ebnf: Option<String>,
    pub(crate) structural_tag: Option<JsonText>,
    pub(crate) guided_json: Option<JsonText>,
    pub(crate) guided_regex: Option<String>,
    pub(crate) guided_choice: Option<Vec<String>>,
    pub(crate) guided_grammar: Option<String>,
    pub(crate) structured_outputs: Option<StructuredOutputs>,
}

// === impl Constraint ===

impl Constraint {
    /// That answers are calls of tools, or have such as keep to their schemas.
    pub(crate) fn of_calls(calls: Calls) -> Self {
        Self {
            field: "tools",
            source: GrammarSource::Calls(calls),
        }
    }

    /// That answers are JSON objects, as `field` says.
    pub(crate) fn of_json(field: &'static str) -> Self {
        Self {
            field,
            source: GrammarSource::JsonObject,
        }
    }

    /// That answers are JSON of a schema, as `field` says.
    pub(crate) fn of_schema(field: &'static str, schema: &Map<String, Value>) -> Self {
        let schema = serde_json::to_string(schema).expect("JSON is written as JSON");
        Self {
            field,
            source: GrammarSource::JsonSchema(schema),
        }
    }

    /// The one of two constraints that there is.
    ///
    /// # Errors
    /// 400 for two of them.
    pub(crate) fn either(one: Option<Self>, other: Option<Self>) -> Result<Option<Self>, ApiError> {
        if let (Some(first), Some(second)) = (&one, &other) {
            let message = format!(
                "`{}` and `{}` both say what the answer must be; give one of them",
                first.field, second.field
            );
            return Err(ApiError::field(second.field, message));
        }
        Ok(one.or(other))
    }

    /// The same behind what the model thinks.
    #[must_use]
    pub(crate) fn behind(self, frame: ThoughtFrame) -> Self {
        // Calls begin with marks of their own.
        let of_calls = matches!(
            self.source,
            GrammarSource::Calls(_) | GrammarSource::StructuralTag(_)
        );
        let thought = Thought {
            open: frame.open.map(str::to_owned),
            close: frame.close.to_owned(),
            lead: if of_calls { "" } else { frame.lead }.to_owned(),
        };
        Self {
            source: GrammarSource::BehindThought(thought, Box::new(self.source)),
            ..self
        }
    }

    /// The grammar of the answers, if there is a constraint.
    ///
    /// # Errors
    /// As [`Self::compile`].
    pub(crate) async fn compiled(
        constraint: Option<Self>,
        service: &Service,
    ) -> Result<Option<Grammar>, ApiError> {
        match constraint {
            Some(constraint) => constraint.compile(service).await.map(Some),
            None => Ok(None),
        }
    }

    /// The grammar, compiled off the HTTP threads.
    ///
    /// # Errors
    /// 400 with the place in the source that cannot be enforced, 503 when too many others are compiled.
    pub(crate) async fn compile(self, service: &Service) -> Result<Grammar, ApiError> {
        let Self { field, source } = self;
        let compiled = service.engine.grammars().compile(source).await;
        compiled.map_err(|why| {
            if why.is_retriable() {
                ApiError::retriable(why.to_string())
            } else {
                ApiError::field(field, why.to_string())
            }
        })
    }
}

// === impl Given ===

impl Given {
    /// The constraint among the fields.
    ///
    /// # Errors
    /// 400 for two of them, and for one that says nothing.
    pub(crate) fn constraint(self) -> Result<Option<Constraint>, ApiError> {
        use GrammarSource as Source;
        let Self {
            response_format,
            json_schema,
            regex,
            ebnf,
            structural_tag,
            guided_json,
            guided_regex,
            guided_choice,
            guided_grammar,
            structured_outputs,
        } = self;
        let format = match response_format {
            Some(format) => format.source()?,
            None => None,
        };
        let outputs = structured_outputs
            .map(StructuredOutputs::source)
            .transpose()?;
        let tag = |text| structural_tag_of("structural_tag", text);
        let given = [
            ("response_format", format),
            (
                "json_schema",
                json_schema.map(|JsonText(text)| Source::JsonSchema(text)),
            ),
            ("regex", regex.map(Source::Regex)),
            ("ebnf", ebnf.map(Source::Ebnf)),
            ("structural_tag", structural_tag.map(tag).transpose()?),
            (
                "guided_json",
                guided_json.map(|JsonText(text)| Source::JsonSchema(text)),
            ),
            ("guided_regex", guided_regex.map(Source::Regex)),
            ("guided_choice", guided_choice.map(Source::Choice)),
            ("guided_grammar", guided_grammar.map(Source::Ebnf)),
            ("structured_outputs", outputs.flatten()),
        ];
        one_of(given)
    }
}

fn one_of(
    given: impl IntoIterator<Item = (&'static str, Option<GrammarSource>)>,
) -> Result<Option<Constraint>, ApiError> {
    let constraint =
        |(field, source): (_, Option<_>)| source.map(|source| Constraint { field, source });
    let mut given = given.into_iter().map(constraint);
    given.try_fold(None, Constraint::either)
}

fn structural_tag_of(
    field: &'static str,
    JsonText(text): JsonText,
) -> Result<GrammarSource, ApiError> {
    let tag: Result<StructuralTag, _> = serde_json::from_str(&text);
    tag.map(GrammarSource::StructuralTag).map_err(|why| {
        let message = format!("a structural tag has `structures`, a list of `begin`, `schema` and `end`, and `triggers`: {why}");
        ApiError::field(field, message)
    })
}

// === impl ResponseFormat ===

impl ResponseFormat {
    fn source(self) -> Result<Option<GrammarSource>, ApiError> {
        Ok(match self {
            Self::Text {} => None,
            Self::JsonObject {} => Some(GrammarSource::JsonObject),
            Self::JsonSchema { json_schema } => {
                let schema = json_schema.schema.ok_or_else(|| {
                    let message =
                        "`response_format` has no schema; give one, or the type json_object";
                    ApiError::field("response_format.json_schema.schema", message)
                })?;
                Some(GrammarSource::JsonSchema(schema.to_string()))
            }
            Self::StructuralTag {
                structures,
                triggers,
            } => Some(GrammarSource::StructuralTag(StructuralTag {
                structures,
                triggers,
            })),
        })
    }
}

// === impl StructuredOutputs ===

impl StructuredOutputs {
    fn source(self) -> Result<Option<GrammarSource>, ApiError> {
        use GrammarSource as Source;
        let tag = |text| structural_tag_of("structured_outputs.structural_tag", text);
        let json_object = self.json_object.unwrap_or(false);
        let given = [
            (
                "structured_outputs.json",
                self.json.map(|JsonText(text)| Source::JsonSchema(text)),
            ),
            ("structured_outputs.regex", self.regex.map(Source::Regex)),
            ("structured_outputs.choice", self.choice.map(Source::Choice)),
            ("structured_outputs.grammar", self.grammar.map(Source::Ebnf)),
            (
                "structured_outputs.json_object",
                json_object.then_some(Source::JsonObject),
            ),
            (
                "structured_outputs.structural_tag",
                self.structural_tag.map(tag).transpose()?,
            ),
        ];
        Ok(one_of(given)?.map(|constraint| constraint.source))
    }
}

// === impl JsonText ===

impl<'de> Deserialize<'de> for JsonText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        match (value.as_str(), value.is_object()) {
            (Some(text), _) => Ok(Self(text.to_owned())),
            (None, true) => Ok(Self(value.to_string())),
            (None, false) => Err(D::Error::custom("expected an object, or its text")),
        }
    }
}

#[cfg(test)]
mod tests;
