//! Any answers of a pair: what prefill computed is merged into what decode says, and what was JSON stays JSON.

use super::*;
use pd_fuzz::{Memory, fuzz, oracle};
use serde::de::IgnoredAny;

/// Prefill's lists go into every answer of their index.
const MEMORY: Memory = Memory {
    base: 256 << 10,
    per_byte: 256,
};

/// A byte of the API, prefill's answer, a zero byte, decode's.
#[test]
fn prompt_logprobs() {
    fuzz!("prompt_logprobs", MEMORY, |bytes| {
        let [api, answers @ ..] = bytes else {
            return;
        };
        let shape = if api % 2 == 0 {
            AnswerShape::Generate
        } else {
            AnswerShape::Completions
        };
        let mut parts = answers.splitn(2, |byte| *byte == 0);
        let (prefill, decode) = (parts.next().unwrap_or(&[]), parts.next().unwrap_or(&[]));
        let prompt = PromptLogprobs::read(shape, prefill);
        let merged = prompt.clone().merge(&Bytes::copy_from_slice(decode));
        oracle(|| {
            if serde_json::from_slice::<IgnoredAny>(decode).is_ok() {
                serde_json::from_slice::<IgnoredAny>(&merged).expect("the merged answer is JSON");
            }
        });
        let whole = merge_events(&prompt, &[decode]);
        let pieces: Vec<&[u8]> = decode.chunks(7).collect();
        oracle(|| assert_eq!(merge_events(&prompt, &pieces), whole));
        if prompt.answers.is_empty() {
            assert_eq!((merged.as_ref(), whole.as_slice()), (decode, decode));
        }
    });
}

fn merge_events(prompt: &PromptLogprobs, pieces: &[&[u8]]) -> Vec<u8> {
    let mut merger = EventMerger::new(prompt.clone());
    let mut out = Vec::new();
    for piece in pieces {
        out.extend_from_slice(&merger.push(piece));
    }
    out.extend_from_slice(&merger.rest());
    out
}
