//! Which grammars stay.

use super::*;
use crate::grammar::tests::{compile, mk_grammars};

fn choice(text: usize) -> GrammarSource {
    GrammarSource::Choice(vec![text.to_string()])
}

#[test]
fn the_grammars_that_were_used_last_stay() {
    let grammar = compile(&mk_grammars(), choice(0)).expect("a grammar");
    let mut cache = Cache::default();
    let keys: Vec<_> = (0..ENTRIES_MAX + 2).map(|i| key(&choice(i))).collect();
    for key in &keys[..ENTRIES_MAX] {
        cache.insert(*key, grammar.clone());
    }
    assert!(cache.get(&keys[0]).is_some());
    for key in &keys[ENTRIES_MAX..] {
        cache.insert(*key, grammar.clone());
    }
    assert_eq!(cache.entries.len(), ENTRIES_MAX);
    assert!(cache.get(&keys[0]).is_some());
    assert!(cache.get(&keys[1]).is_none() && cache.get(&keys[2]).is_none());
}

#[test]
fn sources_of_different_kinds_or_cuts_have_keys_of_their_own() {
    let texts = |texts: &[&str]| GrammarSource::Choice(texts.iter().map(|&t| t.into()).collect());
    let sources = [
        GrammarSource::JsonObject,
        GrammarSource::Regex("ab".to_owned()),
        GrammarSource::JsonSchema("ab".to_owned()),
        texts(&["ab"]),
        texts(&["a", "b"]),
        texts(&["b", "a"]),
    ];
    let keys: std::collections::HashSet<_> = sources.iter().map(key).collect();
    assert_eq!(keys.len(), sources.len());
}
