//! Pieces of an answer against the whole decoded at once.

use super::*;
use crate::text::tests::golden;
use proptest::prelude::*;
use std::sync::LazyLock;

static TOKENIZER: LazyLock<Arc<Tokenizer>> =
    LazyLock::new(|| Arc::new(Tokenizer::from_folder(&golden("tiny-llama")).unwrap()));

static REFERENCE: LazyLock<tokenizers::Tokenizer> = LazyLock::new(|| {
    tokenizers::Tokenizer::from_file(golden("tiny-llama/tokenizer.json")).unwrap()
});

fn pieces(ids: &[u32], skip_special: bool) -> Vec<String> {
    let mut detokenizer = Detokenizer::new(Arc::clone(&TOKENIZER), skip_special);
    let mut pieces: Vec<String> = ids.iter().map(|&id| detokenizer.push(id)).collect();
    pieces.push(detokenizer.finish());
    pieces
}

#[test]
fn a_character_split_over_tokens_comes_whole() {
    let ids = TOKENIZER.encode("é→😀", false).unwrap();
    assert!(ids.len() > 3, "{ids:?}");
    let pieces: Vec<String> = pieces(&ids, true)
        .into_iter()
        .filter(|piece| !piece.is_empty())
        .collect();
    assert_eq!(pieces, ["é", "→", "😀"]);
}

#[test]
fn an_unfinished_character_ends_as_a_replacement() {
    let ids = TOKENIZER.encode("😀", false).unwrap();
    assert_eq!(pieces(&ids[..ids.len() - 1], true).concat(), "\u{FFFD}");
}

#[test]
fn special_tokens_show_only_when_asked_for() {
    assert_eq!(pieces(&[1, 2], true).concat(), "");
    assert_eq!(pieces(&[1, 2], false).concat(), "<|im_start|><|im_end|>");
}

#[test]
fn an_id_outside_the_vocabulary_leaves_no_text() {
    assert_eq!(pieces(&[384, u32::MAX], true).concat(), "");
}

proptest! {
    #[test]
    fn pieces_joined_are_the_whole_decoded(
        ids in prop::collection::vec(0u32..384, 0..60),
        skip_special: bool,
    ) {
        let whole = REFERENCE.decode(&ids, skip_special).unwrap();
        prop_assert_eq!(&pieces(&ids, skip_special).concat(), &whole);
        prop_assert_eq!(TOKENIZER.decode(&ids, skip_special), whole);
    }

    #[test]
    fn text_survives_the_round_trip(text in "\\PC{0,40}") {
        let ids = TOKENIZER.encode(&text, false).unwrap();
        prop_assert_eq!(pieces(&ids, false).concat(), text);
    }

    #[test]
    fn bytes_in_any_pieces_are_the_lossy_text(
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..5), 0..20),
    ) {
        let mut assembler = Utf8Assembler::default();
        let mut text: String = pieces.iter().map(|piece| assembler.push(piece)).collect();
        text.push_str(&assembler.finish());
        let whole = pieces.concat();
        prop_assert_eq!(text, String::from_utf8_lossy(&whole));
    }
}
