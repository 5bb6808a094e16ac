//! Any text for a tokenizer, and any tokenizer.

use super::*;
use crate::text::tests::golden;
use crate::text::{Detokenizer, TextLength};
use pd_fuzz::{Memory, fuzz};
use std::sync::{Arc, LazyLock};

/// As `TextLength::PIECE_BYTES` says, the text again, and what compiled patterns keep.
const TEXT: Memory = Memory {
    base: 8 << 20,
    per_byte: 1024,
};
/// A vocabulary in several tables, and compiled patterns.
const FILE: Memory = Memory {
    base: 16 << 20,
    per_byte: 512,
};

static TOKENIZER: LazyLock<Arc<Tokenizer>> = LazyLock::new(|| {
    let golden = Tokenizer::from_folder(&golden("tiny-llama"));
    Arc::new(golden.expect("the golden tokenizer"))
});

/// The golden vocabulary has every byte, so all text comes back.
#[test]
fn text() {
    fuzz!("text", TEXT, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let ids = TOKENIZER
            .encode(&text, false)
            .expect("every byte is a token");
        assert!(ids.len() <= text.len());
        assert_eq!(TOKENIZER.decode(&ids, false), text);
        let mut pieces = Detokenizer::new(Arc::clone(&TOKENIZER), false);
        let mut joined: String = ids.iter().map(|id| pieces.push(*id)).collect();
        joined.push_str(&pieces.finish());
        assert_eq!(joined, text);
        let Ok(mut length) = TextLength::new(&TOKENIZER, text.as_ref().into(), 8) else {
            return;
        };
        while !length.is_measured() && length.measure_piece(&TOKENIZER).is_ok() {}
    });
}

#[test]
fn tokenizer_file() {
    fuzz!("tokenizer_file", FILE, |bytes| {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str| std::fs::write(folder.path().join(name), bytes);
        write("tokenizer.json").expect("room for it");
        write("tokenizer_config.json").expect("room for it");
        let Ok(tokenizer) = Tokenizer::from_folder(folder.path()) else {
            return;
        };
        let ids = tokenizer
            .encode("a <|im_end|> é1", true)
            .unwrap_or_default();
        let _ = tokenizer.decode(&ids, true);
        assert!(tokenizer.vocab_size() <= 1 << 22);
    });
}
