//! GGUF files: truncated anywhere, of another magic or version, with counts, lengths, types and
//! offsets from nowhere.

use super::{Damaged, are_refused, rewrite, truncate};
use anyhow::{Context, Result};
use pd_e2e::binaries;
use std::path::Path;

const FETCH_AGAIN: &str = "it is truncated or corrupt, fetch it again";
/// Where the header's numbers begin: version, tensors, keys, and the first key's length.
const VERSION: usize = 4;
const TENSOR_COUNT: usize = 8;
const KEY_COUNT: usize = 16;
const FIRST_KEY: usize = 24;
/// A two-dimensional tensor of the file. After its name: number of dimensions, dimensions, type,
/// offset.
const TENSOR: &str = "blk.0.ffn_down.weight";
const DIMENSION: usize = 4;
const KIND: usize = 20;
const OFFSET: usize = 24;

fn damaged(
    name: &'static str,
    parts: &[&str],
    damage: impl FnOnce(&Path) -> Result<()>,
) -> Result<Damaged> {
    let whole = binaries::tiny_model("tiny-gguf").join("llama-q4_0.gguf");
    Damaged::copy_of(name, &whole, ("", parts), damage)
}

/// Overwrites what stands at `at`.
fn put(bytes: &mut [u8], at: usize, new: &[u8]) -> Result<()> {
    let old = bytes
        .get_mut(at..at + new.len())
        .context("inside the file")?;
    old.copy_from_slice(new);
    Ok(())
}

/// Where the bytes after the first `text` begin.
fn after(bytes: &[u8], text: &str) -> Result<usize> {
    let mut windows = bytes.windows(text.len());
    let at = windows.position(|window| window == text.as_bytes());
    Ok(at.with_context(|| format!("the file has {text}"))? + text.len())
}

fn at(place: usize, new: impl AsRef<[u8]>) -> impl FnOnce(&Path) -> Result<()> {
    move |file| {
        rewrite(file, |mut bytes| {
            put(&mut bytes, place, new.as_ref())?;
            Ok(bytes)
        })
    }
}

/// Overwrites `skip` bytes behind the first `text`.
fn behind(text: &str, skip: usize, new: impl AsRef<[u8]>) -> impl FnOnce(&Path) -> Result<()> {
    move |file| {
        rewrite(file, |mut bytes| {
            let place = after(&bytes, text)? + skip;
            put(&mut bytes, place, new.as_ref())?;
            Ok(bytes)
        })
    }
}

/// Renames the first `old`; both are of one length, so nothing moves.
fn renamed(old: &'static str, new: &'static str) -> impl FnOnce(&Path) -> Result<()> {
    move |file| {
        rewrite(file, |mut bytes| {
            let place = after(&bytes, old)? - old.len();
            put(&mut bytes, place, new.as_bytes())?;
            Ok(bytes)
        })
    }
}

fn truncated() -> Result<Vec<Damaged>> {
    let mut cases = vec![damaged("an empty file", &["the file is empty"], |file| {
        truncate(file, 0)
    })?];
    for (name, len, field) in [
        ("inside the magic", 3, "the magic at byte 0"),
        ("inside the counts", 20, "bytes needed"),
        ("inside a key", 40, "bytes needed"),
        ("inside the metadata", 1000, "bytes needed"),
        ("inside the tensors", 9000, "bytes needed"),
    ] {
        let parts = ["the file ends inside", field, FETCH_AGAIN];
        cases.push(damaged(name, &parts, |file| truncate(file, len))?);
    }
    cases.push(damaged(
        "inside the data",
        &["end beyond the file's 60000 bytes", FETCH_AGAIN],
        |file| truncate(file, 60_000),
    )?);
    Ok(cases)
}

fn wild_headers() -> Result<Vec<Damaged>> {
    let huge = (1_u64 << 60).to_le_bytes();
    let ends = |field| ["the file ends inside", field, "bytes needed"];
    Ok(vec![
        damaged(
            "another magic",
            &["the magic at byte 0", "\"GGUF\""],
            at(0, b"GGML"),
        )?,
        damaged(
            "version 1",
            &["the version at byte 4 is 1"],
            at(VERSION, [1]),
        )?,
        damaged(
            "a big-endian file",
            &["the version at byte 4 is 50331648", "little-endian"],
            at(VERSION, [0, 0, 0, 3]),
        )?,
        damaged(
            "2^60 tensors",
            &ends("the number of tensors"),
            at(TENSOR_COUNT, huge),
        )?,
        damaged(
            "2^60 keys",
            &ends("the number of metadata keys"),
            at(KEY_COUNT, huge),
        )?,
        damaged(
            "a key of 2^60 bytes",
            &ends("a metadata key"),
            at(FIRST_KEY, huge),
        )?,
        damaged(
            "a key that is no text",
            &["a metadata key at byte 34", "UTF-8"],
            at(FIRST_KEY + 10, [0xff, 0xfe]),
        )?,
        damaged(
            "a type of value that is none",
            &["a value's type", "is 99", "0 to 12"],
            behind("llama.block_count", 0, 99_u32.to_le_bytes()),
        )?,
        damaged(
            "a list of 2^60 tokens",
            &ends("an array's length"),
            behind("tokenizer.ggml.tokens", 8, huge),
        )?,
        damaged(
            "one tensor too many",
            &["tensor ", FETCH_AGAIN],
            at(TENSOR_COUNT, 30_u64.to_le_bytes()),
        )?,
    ])
}

fn wild_tensors() -> Result<Vec<Damaged>> {
    let huge = (1_u64 << 62).to_le_bytes();
    Ok(vec![
        damaged(
            "nine dimensions",
            &["a tensor's number of dimensions", "is 9", "at most 4"],
            behind(TENSOR, 0, 9_u32.to_le_bytes()),
        )?,
        damaged("2^62 columns", &[TENSOR], behind(TENSOR, DIMENSION, huge))?,
        damaged(
            "columns that are no whole blocks",
            &[TENSOR, "no whole number of Q4_0 blocks"],
            behind(TENSOR, DIMENSION, 161_u64.to_le_bytes()),
        )?,
        damaged(
            "other columns",
            &[TENSOR, "the configuration asks for 64×160"],
            behind(TENSOR, DIMENSION, 32_u64.to_le_bytes()),
        )?,
        damaged(
            "a format that no kernel reads",
            &[TENSOR, "type 7", "supported: F32, F16, BF16, Q8_0"],
            behind(TENSOR, KIND, 7_u32.to_le_bytes()),
        )?,
        damaged(
            "an offset past the end",
            &[TENSOR, "end beyond the file's", FETCH_AGAIN],
            behind(TENSOR, OFFSET, (1_u64 << 40).to_le_bytes()),
        )?,
        damaged(
            "the largest offset",
            &[TENSOR, "end beyond the file's", FETCH_AGAIN],
            behind(TENSOR, OFFSET, (u64::MAX - 31).to_le_bytes()),
        )?,
        damaged(
            "an offset between two places",
            &[TENSOR, "its offset 7 is not a multiple of 32"],
            behind(TENSOR, OFFSET, 7_u64.to_le_bytes()),
        )?,
        damaged(
            "a tensor under another name",
            &["tensor blk.0.ffn_down.weight is missing"],
            renamed(TENSOR, "blk.9.ffn_down.weight"),
        )?,
        damaged(
            "a name that was used before",
            &["blk.1.ffn_down.weight", "used before"],
            renamed(TENSOR, "blk.1.ffn_down.weight"),
        )?,
    ])
}

fn other_models() -> Result<Vec<Damaged>> {
    Ok(vec![
        damaged(
            "another architecture",
            &[
                "general.architecture is \"rwkv7\"",
                "supported: gemma3, llama, qwen2, qwen3, qwen3moe",
            ],
            behind("general.architecture", 12, b"rwkv7"),
        )?,
        damaged(
            "no number of layers",
            &["llama.block_count is missing"],
            renamed("llama.block_count", "llama.block_cunot"),
        )?,
        damaged(
            "no layers",
            &["number of layers is 0", "1 to 1024"],
            behind("llama.block_count", 4, [0]),
        )?,
        damaged(
            "four billion layers",
            &["number of layers is 4294967295", "1 to 1024"],
            behind("llama.block_count", 4, [0xff; 4]),
        )?,
        damaged(
            "no heads",
            &["llama.attention.head_count", "0"],
            behind("llama.attention.head_count", 4, [0]),
        )?,
        damaged(
            "a norm epsilon that is no number",
            &["layer_norm_rms_epsilon is NaN", "a number"],
            behind(
                "llama.attention.layer_norm_rms_epsilon",
                4,
                f32::NAN.to_le_bytes(),
            ),
        )?,
        damaged(
            "another kind of vocabulary",
            &["tokenizer.ggml.model is \"bert\"", "supported: gpt2"],
            behind("tokenizer.ggml.model", 12, b"bert"),
        )?,
        damaged(
            "no tokens",
            &["tokenizer.ggml.tokens is missing"],
            renamed("tokenizer.ggml.tokens", "tokenizer.ggml.tokenz"),
        )?,
        damaged(
            "an end token beyond the vocabulary",
            &["a begin or end token is 65535", "vocabulary size 384"],
            behind("tokenizer.ggml.eos_token_id", 4, 65_535_u32.to_le_bytes()),
        )?,
    ])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_gguf_files_are_named_with_their_place() -> Result<()> {
    are_refused(truncated()?).await?;
    are_refused(wild_headers()?).await?;
    are_refused(wild_tensors()?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gguf_files_of_other_models_are_named_with_their_key() -> Result<()> {
    are_refused(other_models()?).await
}
