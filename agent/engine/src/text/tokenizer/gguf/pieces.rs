//! A SentencePiece vocabulary (`tokenizer.ggml.model` is `llama`), as Gemma's and older Mistral's: pieces with scores, spaces
//! written as ▁. Of two neighbours whose union is a piece, those of the highest score are joined first, so pieces and
//! scores are a BPE whose merges are all the ways to make a piece of two. Text without a piece becomes bytes.

use super::{CONTROL, NORMAL, Source, UNKNOWN, USER_DEFINED, Vocabulary};
use crate::text::token_bytes::Spelling;
use crate::text::tokenizer::TokenizerError;
use std::collections::HashSet;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::{Prepend, Replace, Sequence};

/// Bytes of the longest piece that is joined from others; SentencePiece's own bound is 16 characters, Gemma's 31.
const JOINED_MAX: usize = 256;
/// Ways to make a piece of two, on average; Gemma's have about two.
const MERGES_PER_TOKEN_MAX: usize = 32;

/// # Errors
/// Names the key that is missing, or does not fit the pieces.
pub(super) fn read(source: &Source<'_>, tokens: &[String]) -> Result<Vocabulary, TokenizerError> {
    let metadata = source.gguf.metadata();
    let has_prefix = source.read(metadata.flag("tokenizer.ggml.add_space_prefix"))?;
    let has_prefix = has_prefix.unwrap_or(true);
    let mut encoder = tokenizers::Tokenizer::new(model(source, tokens)?);
    let spaces = Replace::new(" ", "▁").map_err(|error| source.invalid(error.to_string()))?;
    let mut steps = vec![spaces.into()];
    if has_prefix {
        steps.insert(0, Prepend::new("▁".to_owned()).into());
    }
    encoder.with_normalizer(Some(Sequence::new(steps)));
    for structure in [CONTROL, UNKNOWN] {
        encoder.add_special_tokens(&source.of_type(tokens, structure)?);
    }
    encoder.add_tokens(&source.of_type(tokens, USER_DEFINED)?);
    Ok(Vocabulary {
        encoder,
        spelling: Spelling::SentencePiece,
        drops_first_space: has_prefix,
        usually_adds_bos: true,
    })
}

fn model(source: &Source<'_>, tokens: &[String]) -> Result<BPE, TokenizerError> {
    let too_many = |_| source.invalid("more tokens than ids".to_owned());
    let count = u32::try_from(tokens.len()).map_err(too_many)?;
    let vocab: Vocab = tokens.iter().cloned().zip(0..count).collect();
    if vocab.len() != tokens.len() {
        return Err(source.invalid("a piece is there twice".to_owned()));
    }
    let unknown = source.read(
        source
            .gguf
            .metadata()
            .size("tokenizer.ggml.unknown_token_id"),
    )?;
    let unknown = unknown.unwrap_or(0);
    let unknown = tokens.get(unknown).ok_or_else(|| {
        source.invalid(format!(
            "tokenizer.ggml.unknown_token_id is {unknown}, but there are {count} tokens"
        ))
    })?;
    BPE::builder()
        .vocab_and_merges(vocab, merges(source, tokens)?)
        .unk_token(unknown.clone())
        .fuse_unk(true)
        .byte_fallback(true)
        .build()
        .map_err(|error| source.invalid(format!("its pieces make no vocabulary: {error}")))
}

/// Two pieces that make another, those of the highest score first.
fn merges(source: &Source<'_>, tokens: &[String]) -> Result<Vec<(String, String)>, TokenizerError> {
    const SCORES: &str = "tokenizer.ggml.scores";
    let scores = source.read(source.gguf.metadata().numbers(SCORES))?;
    let scores = scores.ok_or_else(|| source.invalid(format!("{SCORES} is missing")))?;
    let types = source.types()?;
    if scores.len() != tokens.len() || types.len() != tokens.len() {
        return Err(source.invalid(format!(
            "it has {} tokens, {} scores and {} token types",
            tokens.len(),
            scores.len(),
            types.len()
        )));
    }
    let joinable = |((piece, _), of): &((&String, &f64), &i64)| {
        [NORMAL, USER_DEFINED].contains(of) && piece.len() <= JOINED_MAX
    };
    let scored = || tokens.iter().zip(scores).zip(&types).filter(joinable);
    let pieces: HashSet<&str> = scored().map(|((piece, _), _)| piece.as_str()).collect();
    let mut merges: Vec<(f64, &str, &str)> = Vec::new();
    for ((piece, score), _) in scored() {
        let cuts = piece.char_indices().skip(1);
        let pairs = cuts.map(|(at, _)| piece.split_at(at));
        let known = pairs.filter(|(left, right)| pieces.contains(left) && pieces.contains(right));
        merges.extend(known.map(|(left, right)| (*score, left, right)));
        if merges.len() > MERGES_PER_TOKEN_MAX * tokens.len() {
            let reason = format!(
                "its pieces are made of others in more than {} ways",
                merges.len()
            );
            return Err(source.invalid(reason));
        }
    }
    merges.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| b.1.len().cmp(&a.1.len())));
    let owned = |(_, left, right): (f64, &str, &str)| (left.to_owned(), right.to_owned());
    Ok(merges.into_iter().map(owned).collect())
}
