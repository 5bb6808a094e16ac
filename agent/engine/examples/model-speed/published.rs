//! Published checkpoints, or their first layers, by the lists in `golden/published`.

use crate::checkpoint::{Checkpoint, Tensor};
use serde_json::{Value, json};

/// config.json and tensors.txt.
struct Published {
    name: &'static str,
    config: &'static str,
    tensors: &'static str,
}

macro_rules! published {
    ($($name:literal)*) => {
        [$(Published {
            name: $name,
            config: include_str!(concat!("../../golden/published/", $name, "/config.json")),
            tensors: include_str!(concat!("../../golden/published/", $name, "/tensors.txt")),
        }),*]
    };
}

const PUBLISHED: [Published; 5] = published! {
    "qwen3-30b-a3b" "qwen3.5-27b" "qwen3.5-35b-a3b" "deepseek-v2-lite" "gpt-oss-20b"
};
/// What a list has beside the language model.
const OTHER_TENSORS: [&str; 2] = ["model.visual.", "mtp."];

/// `NAME`, or `NAME:LAYERS` for its first layers.
pub(crate) fn named(name: &str) -> Option<Checkpoint> {
    let (model, layers) = match name.split_once(':') {
        Some((model, layers)) => (model, layers.parse().ok()?),
        None => (name, usize::MAX),
    };
    let published = PUBLISHED.iter().find(|one| one.name == model)?;
    Some(Checkpoint {
        name: name.to_owned(),
        config: cut_config(serde_json::from_str(published.config).ok()?, layers),
        tensors: tensors(published.tensors, layers)?,
    })
}

fn cut_config(mut config: Value, layers: usize) -> Value {
    let text = match config.get_mut("text_config") {
        Some(_) => &mut config["text_config"],
        None => &mut config,
    };
    let all = text["num_hidden_layers"].as_u64().map(usize::try_from);
    let all = all.and_then(Result::ok).unwrap_or(0);
    text["num_hidden_layers"] = json!(all.min(layers));
    if let Some(types) = text["layer_types"].as_array_mut() {
        types.truncate(layers);
    }
    config
}

/// Of the language model's first layers.
fn tensors(list: &str, layers: usize) -> Option<Vec<Tensor>> {
    let mut found = Vec::new();
    for line in list.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.splitn(3, ' ');
        let (names, dtype, shape) = (words.next()?, words.next()?, words.next()?);
        if OTHER_TENSORS.iter().any(|other| names.starts_with(other)) {
            continue;
        }
        let shape: Vec<usize> = serde_json::from_str(shape).ok()?;
        let kept = expanded(names)?
            .into_iter()
            .filter(|name| layer_of(name).is_none_or(|layer| layer < layers));
        found.extend(kept.map(|name| Tensor {
            name,
            dtype: dtype.to_owned(),
            shape: shape.clone(),
        }));
    }
    Some(found)
}

fn layer_of(name: &str) -> Option<usize> {
    let (_, rest) = name.split_once(".layers.")?;
    rest.split('.').next()?.parse().ok()
}

/// Names that a line stands for: a number may be a set, as `{0..2,5}`.
fn expanded(names: &str) -> Option<Vec<String>> {
    let Some((before, rest)) = names.split_once('{') else {
        return Some(vec![names.to_owned()]);
    };
    let (set, after) = rest.split_once('}')?;
    let tails = expanded(after)?;
    let mut found = Vec::new();
    for part in set.split(',') {
        let (first, last) = part.split_once("..").unwrap_or((part, part));
        for number in first.parse::<usize>().ok()?..=last.parse().ok()? {
            found.extend(tails.iter().map(|tail| format!("{before}{number}{tail}")));
        }
    }
    Some(found)
}
