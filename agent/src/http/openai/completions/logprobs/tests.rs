//! Where tokens begin in an answer.

use super::*;
use pd_engine::text::Tokenizer;
use std::path::Path;
use std::sync::Arc;

fn offsets(text: &str, first: usize) -> Vec<usize> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("engine/golden/tiny-llama");
    let texts = TokenTexts(Arc::new(Tokenizer::from_folder(&folder).unwrap()));
    let ids = texts.0.encode(text, false).unwrap();
    let mut offset = TextOffset::new(&texts, first, true);
    ids.into_iter().map(|id| offset.advance(id)).collect()
}

#[test]
fn tokens_of_one_character_begin_where_it_does() {
    assert_eq!(offsets("🎉🎉", 7), [7, 7, 7, 7, 8, 8, 8, 8]);
}

#[test]
fn special_tokens_take_no_characters() {
    assert_eq!(offsets("<|im_end|><|im_end|>", 3), [3, 3]);
}
