//! From a source to a grammar, by `llguidance`, whose limits bound what that takes.

use super::error::GrammarError;
use super::notation::{quoted, with_options};
use super::source::GrammarSource;
use super::vocabulary::Vocabulary;
use super::{calls, gbnf, schema, tags, thought};
use llguidance::api::TopLevelGrammar;
use llguidance::{Matcher, TokenParser};
use serde_json::Value;
use std::fmt::{Debug, Display, Formatter, Result as FmtResult};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A compiled grammar of one engine. Clones share it.
#[derive(Clone)]
pub struct Grammar(pub(super) Arc<Compiled>);

/// A grammar before an answer's first token.
pub(super) struct Compiled {
    start: Matcher,
    /// Shares the lexer with all matchers of the grammar.
    parser: TokenParser,
    /// Of the lexer, which grows as answers reach new states.
    lexer_bytes: AtomicUsize,
    vocabulary: Arc<Vocabulary>,
    source: GrammarSource,
}

/// # Errors
/// Says what in the source is wrong or cannot be enforced, and where.
pub(super) fn compile(
    vocabulary: &Arc<Vocabulary>,
    source: &GrammarSource,
) -> Result<Grammar, GrammarError> {
    let invalid = |error| source.invalid(problem(&error));
    let parser = vocabulary
        .factory
        .create_parser(top_level(vocabulary, source)?);
    let parser = parser.map_err(invalid)?;
    let mut start = Matcher::new(Ok(parser.clone()));
    // What it warns of, it does not enforce.
    if let Some(warning) = start.grammar_warnings().into_iter().next() {
        return Err(source.invalid(warning));
    }
    // The first token's mask: there is one, and requests find it computed.
    start.compute_mask_or_eos().map_err(invalid)?;
    Ok(Grammar(Arc::new(Compiled {
        lexer_bytes: AtomicUsize::new(parser.parser.lexer_stats().num_bytes),
        start,
        parser,
        vocabulary: vocabulary.clone(),
        source: source.clone(),
    })))
}

fn top_level(
    vocabulary: &Vocabulary,
    source: &GrammarSource,
) -> Result<TopLevelGrammar, GrammarError> {
    let lark = |lark: Result<String, String>| {
        let lark = lark.map_err(|problem| source.invalid(problem))?;
        Ok(TopLevelGrammar::from_lark(lark))
    };
    match source {
        GrammarSource::JsonObject => Ok(json(serde_json::json!({ "type": "object" }))),
        GrammarSource::JsonSchema(text) => {
            let schema: Value = serde_json::from_str(text)
                .map_err(|error| source.invalid(format!("it is not JSON: {error}")))?;
            schema::check(&schema).map_err(|error| source.invalid(error.to_string()))?;
            Ok(json(schema))
        }
        GrammarSource::Regex(text) => {
            let slashes = text.len() - text.trim_end_matches('\\').len();
            if text.is_empty() {
                return Err(source.invalid("it is empty, and so would be the answer"));
            }
            if slashes % 2 == 1 {
                return Err(source.invalid("it ends in a single backslash"));
            }
            Ok(TopLevelGrammar::from_regex(text))
        }
        GrammarSource::Choice(texts) => {
            if texts.iter().all(String::is_empty) {
                return Err(source.invalid("it has no text; give at least one"));
            }
            let texts: Vec<_> = texts.iter().map(|text| quoted(text)).collect();
            // One terminal: the texts may begin with each other.
            lark(Ok(format!("start: TEXT\nTEXT: {}\n", texts.join(" | "))))
        }
        GrammarSource::Ebnf(text) => lark(gbnf::to_lark(text)),
        GrammarSource::StructuralTag(tag) => lark(tags::to_lark(tag, vocabulary)),
        GrammarSource::Calls(calls) => lark(calls::to_lark(calls, vocabulary)),
        GrammarSource::BehindThought(thought, source) => {
            let answer = top_level(vocabulary, source)?;
            let behind = thought::in_front_of(thought, answer, vocabulary);
            behind.map_err(|problem| source.invalid(problem))
        }
    }
}

fn json(schema: Value) -> TopLevelGrammar {
    TopLevelGrammar::from_json_schema(with_options(schema))
}

const ONE_OF_UNSUPPORTED: &str = "oneOf constraints are not supported. Enable 'coerce_one_of' option to approximate oneOf with anyOf";
const ONE_OF: &str = "oneOf is enforced where no value is of two of its schemas: of other types, or with other constants in \
    a property that one requires; make them so, or use anyOf";

/// The crate's message without what is for its authors.
pub(super) fn problem(error: &impl Display) -> String {
    let text = format!("{error:#}");
    let cut = ["\n<backtrace>", "\n<non-verbose/>", "\n<state>"];
    let end = cut.iter().filter_map(|mark| text.find(mark)).min();
    let text = text[..end.unwrap_or(text.len())].trim();
    match text {
        "NoExtensionBias" => "no token of this model continues it".to_owned(),
        _ => text.replace(ONE_OF_UNSUPPORTED, ONE_OF),
    }
}

// === impl Compiled ===

impl Compiled {
    pub(super) fn start(&self) -> Matcher {
        self.start.clone()
    }

    pub(super) fn vocabulary(&self) -> &Arc<Vocabulary> {
        &self.vocabulary
    }

    pub(super) fn source(&self) -> &GrammarSource {
        &self.source
    }

    /// Of the lexer, when its size was last noted.
    pub(super) fn lexer_bytes(&self) -> usize {
        self.lexer_bytes.load(Ordering::Relaxed)
    }

    /// Of the lexer and the source.
    pub(super) fn bytes(&self) -> usize {
        self.lexer_bytes() + self.source.len()
    }

    pub(super) fn note_size(&self) {
        let bytes = self.parser.parser.lexer_stats().num_bytes;
        self.lexer_bytes.store(bytes, Ordering::Relaxed);
    }
}

// === impl Grammar ===

impl Debug for Grammar {
    fn fmt(&self, f: &mut Formatter<'_>) -> FmtResult {
        f.debug_struct("Grammar").finish_non_exhaustive()
    }
}
