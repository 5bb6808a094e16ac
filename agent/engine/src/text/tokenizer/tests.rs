//! Text to ids, from both kinds of file.

use super::*;
use crate::text::tests::golden;
use crate::weights::Gguf;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::fs;
use std::sync::LazyLock;

static HF: LazyLock<Tokenizer> =
    LazyLock::new(|| Tokenizer::from_folder(&golden("tiny-llama")).unwrap());
static GGUF: LazyLock<Tokenizer> = LazyLock::new(|| {
    Tokenizer::from_gguf(&Gguf::open(&golden("tiny-gguf/llama-f16.gguf")).unwrap()).unwrap()
});

static PIECES: LazyLock<Tokenizer> = LazyLock::new(|| {
    Tokenizer::from_gguf(&Gguf::open(&golden("tiny-gguf/gemma3-q8_0.gguf")).unwrap()).unwrap()
});

/// A copy of the tiny tokenizer's folder with `change` made to its tokenizer.json.
fn changed(change: impl FnOnce(&mut Value)) -> Result<Tokenizer, TokenizerError> {
    let folder = tempfile::tempdir().unwrap();
    let text = fs::read(golden("tiny-llama/tokenizer.json")).unwrap();
    let mut fields: Value = serde_json::from_slice(&text).unwrap();
    change(&mut fields);
    fs::write(folder.path().join("tokenizer.json"), fields.to_string()).unwrap();
    Tokenizer::from_folder(folder.path())
}

#[test]
fn special_tokens_are_known_by_name_and_id() {
    for tokenizer in [&*HF, &*GGUF] {
        assert_eq!(tokenizer.vocab_size(), 384);
        assert_eq!(tokenizer.bos_token(), Some("<|im_start|>"));
        assert_eq!(tokenizer.eos_token(), Some("<|im_end|>"));
        assert!(tokenizer.is_special(2) && !tokenizer.is_special(3));
        assert_eq!(
            tokenizer.encode("a<|im_end|>", true).unwrap().last(),
            Some(&2)
        );
    }
}

#[test]
fn what_the_file_puts_around_a_prompt_is_added_on_request_only() {
    let tokenizer = changed(|fields| {
        fields["post_processor"] = json!({
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<|im_start|>", "type_id": 0}},
                       {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {
                "<|im_start|>": {"id": "<|im_start|>", "ids": [1], "tokens": ["<|im_start|>"]}},
        });
    })
    .unwrap();
    let plain = tokenizer.encode("the page", false).unwrap();
    assert_eq!(
        tokenizer.encode("the page", true).unwrap(),
        [&[1], &plain[..]].concat()
    );
}

#[test]
fn a_cancelled_text_ends_at_the_next_word() {
    let cancelled = AtomicBool::new(true);
    let ended = HF.encode_unless(&cancelled, "the page", false);
    assert!(matches!(ended, Err(EncodeError::Cancelled)), "{ended:?}");
}

#[test]
fn a_file_never_cuts_a_prompt() {
    let tokenizer = changed(|fields| {
        fields["truncation"] = json!({
            "direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0});
    })
    .unwrap();
    assert!(tokenizer.encode("free, cached, held", false).unwrap().len() > 2);
}

#[test]
fn an_unknown_decoder_is_named() {
    let error = changed(|fields| {
        fields["decoder"] = json!({"type": "WordPiece", "prefix": "##", "cleanup": true})
    });
    let message = error.unwrap_err().to_string();
    assert!(
        message.ends_with("decoder is [WordPiece], which is not supported; supported: ByteLevel, ByteFallback, Metaspace"),
        "{message}"
    );
}

#[test]
fn a_sentence_piece_vocabulary_drops_the_first_space() {
    let tokenizer = changed(|fields| {
        fields["decoder"] = json!({"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]});
        fields["added_tokens"].as_array_mut().unwrap().extend([
            json!({"id": 384, "content": "▁hello", "single_word": false, "lstrip": false,
                   "rstrip": false, "normalized": false, "special": false}),
            json!({"id": 385, "content": "<0xE2>", "single_word": false, "lstrip": false,
                   "rstrip": false, "normalized": false, "special": false}),
        ]);
    })
    .unwrap();
    assert_eq!(tokenizer.decode(&[384, 384], true), "hello hello");
    assert_eq!(tokenizer.decode(&[1, 384], true), "hello");
    assert_eq!(tokenizer.token_bytes(385), [0xE2]);
}

#[test]
fn pieces_of_a_gguf_file_are_those_of_sentence_piece() {
    let expected = fs::read(golden("tiny-gguf/pieces.json")).unwrap();
    let expected: Value = serde_json::from_slice(&expected).unwrap();
    for text in expected["texts"].as_array().unwrap() {
        let (text, ids) = (text[0].as_str().unwrap(), &text[1]);
        let own = PIECES.encode(text, false).unwrap();
        assert_eq!(&json!(own), ids, "{text:?}");
        assert_eq!(PIECES.decode(&own, false), text.replace('▁', " "));
    }
    assert_eq!(PIECES.encode("a<s>", false).unwrap().last(), Some(&1));
}

proptest! {
    #[test]
    fn ids_are_those_of_the_encoder_itself(text in "[ a-z0-9.,'é好\n\t<|>_im]{0,60}") {
        for tokenizer in [&*HF, &*GGUF, &*PIECES] {
            let own = tokenizer.encoder.encode_fast(text.as_str(), true).unwrap();
            let prefix = tokenizer.prompt_prefix.into_iter();
            let own: Vec<u32> = prefix.chain(own.get_ids().iter().copied()).collect();
            prop_assert_eq!(tokenizer.encode(&text, true).unwrap(), own);
        }
    }

    #[test]
    fn folder_and_gguf_agree_on_every_text(text in "[ a-z0-9.,'é好\n\t]{0,60}") {
        prop_assert_eq!(HF.encode(&text, true).unwrap(), GGUF.encode(&text, true).unwrap());
    }
}
