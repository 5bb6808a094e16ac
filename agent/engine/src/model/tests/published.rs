//! Published checkpoints by the names and shapes of their tensors (`golden/published`), without
//! their bytes: each role finds its tensor, and each tensor is asked for or counted as unused.

use super::paper::Paper;
use super::*;
use crate::model::decoder::Decoder;
use crate::model::decoder::loader::Loader;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write as _;

/// Names of a line of `tensors.txt`: a number in a name may be a set, as `{0..2,5}`.
fn expanded(name: &str) -> Vec<String> {
    let Some((before, rest)) = name.split_once('{') else {
        return vec![name.to_owned()];
    };
    let (set, after) = rest.split_once('}').expect("a set has an end");
    let numbers = set.split(',').flat_map(|part| {
        let (first, last) = part.split_once("..").unwrap_or((part, part));
        first.parse::<usize>().unwrap()..=last.parse().unwrap()
    });
    let tails = expanded(after);
    let name = |number: usize| {
        tails
            .iter()
            .map(move |tail| format!("{before}{number}{tail}"))
    };
    numbers.flat_map(name).collect()
}

/// `config.json` and `tensors.txt` of a checkpoint.
fn files_of(name: &str) -> (Value, String) {
    let published = golden("published").join(name);
    let config = fs::read(published.join("config.json")).unwrap();
    let list = fs::read_to_string(published.join("tensors.txt")).unwrap();
    (serde_json::from_slice(&config).unwrap(), list)
}

/// The config, and one file of all tensors, which are a hole.
fn folder_of(config: &Value, list: &str) -> tempfile::TempDir {
    let mut header = Map::new();
    let mut end = 0usize;
    for line in list.lines().filter(|line| !line.starts_with('#')) {
        let (name, rest) = line.split_once(' ').unwrap();
        let (dtype, shape) = rest.split_once(' ').unwrap();
        let shape: Vec<usize> = serde_json::from_str(shape).unwrap();
        let element = match dtype {
            "U8" | "F8_E4M3" => 1,
            "BF16" => 2,
            "F32" => 4,
            other => panic!("{name}: {other}"),
        };
        for name in expanded(name) {
            let start = end;
            end += shape.iter().product::<usize>() * element;
            let place = json!({"dtype": dtype, "shape": shape, "data_offsets": [start, end]});
            assert!(header.insert(name, place).is_none());
        }
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    let header = Value::Object(header).to_string();
    let mut file = File::create(folder.path().join("model.safetensors")).unwrap();
    file.write_all(&(header.len() as u64).to_le_bytes())
        .unwrap();
    file.write_all(header.as_bytes()).unwrap();
    file.set_len((8 + header.len() + end) as u64).unwrap();
    folder
}

/// Loads a checkpoint as a model would be, and counts what it leaves unused.
fn unused(name: &str) -> BTreeMap<String, usize> {
    let (config, list) = files_of(name);
    unused_of(name, &config, &list)
}

fn unused_of(name: &str, config: &Value, list: &str) -> BTreeMap<String, usize> {
    let folder = folder_of(config, list);
    unused_in(name, &ModelFiles::open(folder.path()).unwrap())
}

/// The same with the checkpoint's draft layer.
fn unused_drafting(name: &str, config: &Value, list: &str) -> BTreeMap<String, usize> {
    let folder = folder_of(config, list);
    let files = ModelFiles::open(folder.path()).unwrap();
    unused_in(name, &files.with_draft_layer().unwrap())
}

fn unused_in(name: &str, files: &ModelFiles) -> BTreeMap<String, usize> {
    let limits = StepLimits {
        max_tokens: 1,
        max_logit_rows: 1,
    };
    let pool = KvPoolSpec::of(&files.config);
    let mut loader = Loader::new(&Paper, files, limits, (pool, DType::F32));
    let loaded = Decoder::load_with(&mut loader);
    loaded.unwrap_or_else(|error| panic!("{name}: {error}"));
    loader.unused()
}

fn counts<const N: usize>(of_prefix: [(&str, usize); N]) -> BTreeMap<String, usize> {
    of_prefix
        .map(|(prefix, tensors)| (prefix.to_owned(), tensors))
        .into()
}

#[test]
fn every_tensor_of_a_published_checkpoint_is_loaded_or_known_to_be_unused() {
    for name in [
        "deepseek-v2-lite",
        "mistral-7b-v0.3",
        "qwen2.5-7b",
        "qwen3-30b-a3b",
    ] {
        assert_eq!(unused(name), BTreeMap::new(), "{name}");
    }
    let known = [("multi_modal_projector.*", 2), ("vision_tower.*", 437)];
    assert_eq!(unused("gemma-3-4b-it"), counts(known));
    for (name, drafts) in [("qwen3.5-27b", 15), ("qwen3.5-35b-a3b", 785)] {
        let known = [("model.visual.*", 333), ("mtp.*", drafts)];
        assert_eq!(unused(name), counts(known), "{name}");
    }
}

#[test]
fn drafts_of_a_published_checkpoint_are_known_to_be_unused() {
    let drafts = counts([("mtp.*", 1553)]);
    assert_eq!(unused("qwen3-next-80b-a3b"), drafts);
}

#[test]
fn every_tensor_of_a_published_draft_layer_is_loaded() {
    for name in ["qwen3.5-27b", "qwen3.5-35b-a3b", "qwen3-next-80b-a3b"] {
        let (config, list) = files_of(name);
        let unused = unused_drafting(name, &config, &list);
        assert_eq!(unused.get("mtp.*"), None, "{name}");
    }
}

/// Two layers of it, one dense and one with experts, as a copy in BF16 has them; layers of these numbers have experts,
/// or anything.
fn deepseek_v3(with_experts: &str, all: &str) -> (Value, String) {
    let (mut config, list) = files_of("deepseek-v3");
    config["num_hidden_layers"] = json!(2);
    config["first_k_dense_replace"] = json!(1);
    config["quantization_config"].take();
    let lines = list.lines().filter(|line| !line.contains("_scale_inv"));
    let list = lines.collect::<Vec<_>>().join("\n");
    let list = [
        ("{0..2}", "0"),
        ("{3..61}", with_experts),
        ("{0..61}", all),
        (".61.", ".2."),
        ("F8_E4M3", "BF16"),
    ]
    .iter()
    .fold(list, |list, (from, to)| list.replace(from, to));
    (config, list)
}

#[test]
fn every_tensor_of_deepseek_v3_is_loaded_or_a_draft() {
    let (config, list) = deepseek_v3("1", "{0..1}");
    let drafts = counts([("model.layers.*", 6)]);
    assert_eq!(unused_of("deepseek-v3", &config, &list), drafts);
}

#[test]
fn every_tensor_of_deepseek_v3_s_draft_layer_is_loaded_but_the_model_s_own_again() {
    let (config, list) = deepseek_v3("{1..2}", "{0..2}");
    let repeated = counts([("model.layers.*", 2)]);
    assert_eq!(unused_drafting("deepseek-v3", &config, &list), repeated);
}

/// A whole one would take minutes to expand; each layer of the tiny one has the same tensors.
#[test]
fn the_tiny_gpt_oss_has_the_names_of_the_published_one() {
    let list = fs::read_to_string(golden("published/gpt-oss-20b/tensors.txt")).unwrap();
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    let names = lines.map(|line| line.split_once(' ').unwrap().0);
    let published: BTreeSet<String> = names.map(|name| name.replace("{0..23}", "0")).collect();
    let bytes = fs::read(golden("tiny-gpt-oss-mxfp4/model.safetensors")).unwrap();
    let names = SafeTensors::deserialize(&bytes).unwrap();
    let names = names.names().into_iter();
    let is_first = |name: &&str| !name.contains(".layers.") || name.contains(".layers.0.");
    let tiny: BTreeSet<String> = names.filter(is_first).map(str::to_owned).collect();
    assert_eq!(tiny, published);
}

#[test]
fn a_set_of_numbers_in_a_name_stands_for_each() {
    assert_eq!(
        expanded("a.{0..1,5}.b.{2..3}"),
        [
            "a.0.b.2", "a.0.b.3", "a.1.b.2", "a.1.b.3", "a.5.b.2", "a.5.b.3"
        ]
    );
}
