//! Any text as a source. What is compiled allows only tokens that it takes.

use super::compile::compile;
use super::tests::{TOKENIZER, VOCAB};
use super::vocabulary::Vocabulary;
use super::*;
use pd_fuzz::{Memory, fuzz};
use std::sync::{Arc, LazyLock};

/// A lexer's tables, and the trace of a panic that the crate catches.
const SOURCE: Memory = Memory {
    base: 128 << 20,
    per_byte: 64 << 10,
};

static VOCABULARY: LazyLock<Arc<Vocabulary>> = LazyLock::new(|| {
    let vocabulary = Vocabulary::new(&TOKENIZER, VOCAB, &[2]);
    Arc::new(vocabulary.expect("the tiny vocabulary fits a trie"))
});

/// An answer of up to 16 tokens, which `choices` choose. What is forced next may be asked at any place.
fn answer(source: &GrammarSource, choices: &[u8]) {
    let Ok(grammar) = source
        .check_len()
        .and_then(|()| compile(&VOCABULARY, source))
    else {
        return;
    };
    let (state, jumping) = (
        GrammarState::new(grammar.clone()),
        GrammarState::new(grammar),
    );
    for choice in choices.iter().take(16) {
        let words = state.mask_job(&[], Vec::new()).run();
        let forced = jumping.forced(4);
        let forced = &forced[..jumping.allowed(&forced)];
        let same = jumping.mask_job(&[], Vec::new()).run();
        assert_eq!(words, same, "{source:?}: before {forced:?}");
        for ahead in (1..=forced.len()).map(|len| &forced[..len]) {
            let [words, same] =
                [&state, &jumping].map(|state| state.mask_job(ahead, Vec::new()).run());
            assert_eq!(words, same, "{source:?}: behind {ahead:?}");
        }
        let is_set = |id: &u32| words[*id as usize / 32] >> (id % 32) & 1 == 1;
        let allowed: Vec<u32> = (0..VOCAB).filter(is_set).collect();
        let Some(token) = allowed.get(usize::from(*choice) % allowed.len().max(1)) else {
            return;
        };
        let taken = state.take(*token);
        assert_eq!(taken, jumping.take(*token), "{source:?}: token {token}");
        match taken {
            None => {}
            Some(crate::request::FinishReason::Stop { .. }) => return,
            Some(other) => panic!("{source:?}: token {token} is allowed and not taken: {other:?}"),
        }
    }
}

/// A schema as the parameters of one tool, in each way to write arguments.
#[test]
fn calls() {
    fuzz!("calls", SOURCE, |bytes| {
        let Ok(schema) = serde_json::from_slice::<serde_json::Value>(bytes) else {
            return;
        };
        let properties = schema["properties"].as_object().into_iter().flatten();
        let texts = properties.map(|(name, _)| TextParameter {
            name: name.clone(),
            or_null: name.len() % 2 == 0,
        });
        let keyed = |texts, has_free_breaks| {
            Arguments::Keyed(KeyedArguments {
                before_key: "<k>".to_owned(),
                before_value: "</k>\n".to_owned(),
                end: "</v>\n".to_owned(),
                has_free_breaks,
                schema: schema.clone(),
                texts,
            })
        };
        let texts: Vec<_> = texts.collect();
        for arguments in [
            keyed(texts, true),
            keyed(Vec::new(), false),
            Arguments::Python(schema.clone()),
        ] {
            let call = ToolCall {
                begin: String::new(),
                behind_number: None,
                arguments,
                end: ")".to_owned(),
            };
            let around = Around::Marks {
                open: String::new(),
                between: None,
                close: String::new(),
            };
            let calls = Calls {
                tools: vec![call],
                around,
            };
            answer(&GrammarSource::Calls(calls), bytes);
        }
    });
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn json_schema() {
    fuzz!("json_schema", SOURCE, |bytes| {
        answer(&GrammarSource::JsonSchema(text(bytes)), bytes);
    });
}

#[test]
fn regex() {
    fuzz!("regex", SOURCE, |bytes| {
        answer(&GrammarSource::Regex(text(bytes)), bytes);
    });
}

#[test]
fn ebnf() {
    fuzz!("ebnf", SOURCE, |bytes| {
        answer(&GrammarSource::Ebnf(text(bytes)), bytes);
    });
}
