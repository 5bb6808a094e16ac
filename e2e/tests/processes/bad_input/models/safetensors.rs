//! Safetensors: truncated, of another header, with tensors and shards from nowhere.

use super::{Damaged, are_refused, edit_json, of_llama, remove, rewrite, truncate};
use anyhow::{Context, Result};
use pd_e2e::binaries;
use serde_json::{Map, Value, json};
use std::path::Path;

const WEIGHTS: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const FETCH_AGAIN: &str = "it is truncated or corrupt, fetch it again";
/// Bytes before a header: its length.
const LENGTH_BYTES: usize = 8;

/// Header and data of a safetensors file.
fn split(bytes: &[u8]) -> Result<(Map<String, Value>, &[u8])> {
    let (len, rest) = bytes
        .split_first_chunk::<LENGTH_BYTES>()
        .context("a length")?;
    let len = usize::try_from(u64::from_le_bytes(*len))?;
    Ok((serde_json::from_slice(&rest[..len])?, &rest[len..]))
}

/// Edits the header and keeps the data.
fn edit_header(
    folder: &Path,
    edit: impl FnOnce(&mut Map<String, Value>) -> Result<()>,
) -> Result<()> {
    rewrite(&folder.join(WEIGHTS), |bytes| {
        let (mut header, data) = split(&bytes)?;
        edit(&mut header)?;
        let header = serde_json::to_vec(&header)?;
        let len = (header.len() as u64).to_le_bytes();
        Ok([&len, header.as_slice(), data].concat())
    })
}

fn edit_tensor(folder: &Path, name: &str, field: &str, value: Value) -> Result<()> {
    edit_header(folder, |header| {
        header.get_mut(name).context("such a tensor")?[field] = value;
        Ok(())
    })
}

fn damaged_files() -> Result<Vec<Damaged>> {
    let shortened = |len: usize| move |folder: &Path| truncate(&folder.join(WEIGHTS), len);
    let length = |len: u64| {
        move |folder: &Path| {
            rewrite(&folder.join(WEIGHTS), |mut bytes| {
                bytes[..LENGTH_BYTES].copy_from_slice(&len.to_le_bytes());
                Ok(bytes)
            })
        }
    };
    Ok(vec![
        of_llama(
            "no weights",
            (
                "",
                &["holds neither model.safetensors nor model.safetensors.index.json"],
            ),
            |folder| remove(folder, WEIGHTS),
        )?,
        of_llama(
            "an empty file",
            (WEIGHTS, &["the file is empty"]),
            shortened(0),
        )?,
        of_llama(
            "a file of three bytes",
            (WEIGHTS, &["ends inside the header's length", FETCH_AGAIN]),
            shortened(3),
        )?,
        of_llama(
            "a truncated header",
            (WEIGHTS, &["ends inside the header at byte 8", FETCH_AGAIN]),
            shortened(1000),
        )?,
        of_llama(
            "truncated data",
            (WEIGHTS, &["the data has", FETCH_AGAIN]),
            shortened(600_000),
        )?,
        of_llama(
            "a header of 2^63 bytes",
            (WEIGHTS, &["9223372036854775808 bytes needed", FETCH_AGAIN]),
            length(1 << 63),
        )?,
        of_llama(
            "a header of no bytes",
            (WEIGHTS, &["the header (bytes 8 to 8) is not valid"]),
            length(0),
        )?,
        of_llama(
            "a header that is no JSON",
            (WEIGHTS, &["the header", "is not valid", "line 1"]),
            |folder| {
                rewrite(&folder.join(WEIGHTS), |mut bytes| {
                    bytes[100] = 0xff;
                    Ok(bytes)
                })
            },
        )?,
    ])
}

fn damaged_tensors() -> Result<Vec<Damaged>> {
    let table = "model.embed_tokens.weight";
    let norm = "model.norm.weight";
    let set = |field: &'static str, value: Value| {
        move |folder: &Path| edit_tensor(folder, table, field, value)
    };
    Ok(vec![
        of_llama(
            "offsets past the end",
            (WEIGHTS, &["the header", "is not valid"]),
            set("data_offsets", json!([0, 1_u64 << 40])),
        )?,
        of_llama(
            "offsets that run backwards",
            (WEIGHTS, &["the header", "is not valid"]),
            set("data_offsets", json!([98304, 0])),
        )?,
        of_llama(
            "a shape that overflows",
            (WEIGHTS, &["the header", "is not valid"]),
            set("shape", json!([1_u64 << 62, 1_u64 << 62])),
        )?,
        of_llama(
            "a dtype that is none",
            (WEIGHTS, &["the header", "is not valid", "F31"]),
            set("dtype", json!("F31")),
        )?,
        of_llama(
            "a dtype that no kernel reads",
            (WEIGHTS, &[table, "I32", "supported: F32, F16, BF16"]),
            set("dtype", json!("I32")),
        )?,
        of_llama(
            "a transposed matrix",
            (
                "",
                &[table, "64×384, but the configuration asks for 384×64"],
            ),
            set("shape", json!([64, 384])),
        )?,
        of_llama(
            "a tensor under another name",
            ("", &[norm, "is missing", "incomplete or of another family"]),
            |folder| {
                edit_header(folder, |header| {
                    let info = header.remove(norm).context("such a tensor")?;
                    header.insert("model.other.weight".to_owned(), info);
                    Ok(())
                })
            },
        )?,
    ])
}

fn damaged_indices() -> Result<Vec<Damaged>> {
    let sharded = |name, expected, damage: fn(&Path) -> Result<()>| {
        Damaged::copy_of(name, &binaries::tiny_model("tiny-qwen3"), expected, damage)
    };
    let shard = "model-00002-of-00002.safetensors";
    Ok(vec![
        sharded("a missing shard", (shard, &["No such file"]), |folder| {
            remove(folder, "model-00002-of-00002.safetensors")
        })?,
        sharded(
            "an index that leads out of the folder",
            (INDEX, &["../secret", "expected a file next to it"]),
            |folder| {
                edit_json(&folder.join(INDEX), |index| {
                    index["weight_map"]["lm_head.weight"] = json!("../secret");
                })
            },
        )?,
        sharded(
            "an index that is no JSON",
            (INDEX, &["not a valid index", "EOF"]),
            |folder| truncate(&folder.join(INDEX), 9),
        )?,
        sharded(
            "one shard in the place of the other",
            (shard, &["is in two files"]),
            |folder| {
                let first = folder.join("model-00001-of-00002.safetensors");
                let second = folder.join("model-00002-of-00002.safetensors");
                std::fs::copy(first, second)?;
                Ok(())
            },
        )?,
    ])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_safetensors_are_named_with_their_place() -> Result<()> {
    are_refused(damaged_files()?).await?;
    are_refused(damaged_tensors()?).await?;
    are_refused(damaged_indices()?).await
}
