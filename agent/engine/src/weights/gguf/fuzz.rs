//! Any bytes as a GGUF file: its header, and the model, tokenizer and template that it describes.

use super::*;
use crate::model::config;
use crate::text::{ChatTemplate, Tokenizer};
use pd_fuzz::{Memory, fuzz};
use std::io::Write;

/// Integers of one byte become eight, in lists that grow by doubling.
const HEADER: Memory = Memory {
    base: 64 << 10,
    per_byte: 48,
};
/// A tokenizer has its tokens in several tables, and its words in compiled patterns.
const MODEL: Memory = Memory {
    base: 8 << 20,
    per_byte: 512,
};

#[test]
fn gguf_header() {
    fuzz!("gguf_header", HEADER, |bytes| {
        let Ok(header) = Header::parse(bytes) else {
            return;
        };
        assert!(header.header_len <= bytes.len());
        for info in header.tensors.values() {
            assert!(info.start <= info.end && info.end <= bytes.len());
            let row_bytes = info.format.row_bytes(info.columns).expect("whole blocks");
            assert_eq!(info.rows * row_bytes, info.end - info.start);
        }
    });
}

#[test]
fn gguf_model() {
    fuzz!("gguf_model", MODEL, |bytes| {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(bytes).expect("room for it");
        let Ok(gguf) = Gguf::open(file.path()) else {
            return;
        };
        if let Ok((config, _)) = config::gguf::read_config(&gguf) {
            config.check("read").expect("what was read was checked");
        }
        if let Ok(tokenizer) = Tokenizer::from_gguf(&gguf) {
            let ids = tokenizer
                .encode("a <|im_end|> é1", true)
                .unwrap_or_default();
            let _ = tokenizer.decode(&ids, false);
            let _ = ChatTemplate::from_gguf(&gguf, &tokenizer);
        }
    });
}
