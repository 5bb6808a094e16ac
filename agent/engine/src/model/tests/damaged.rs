//! Files with a tensor too few, of another shape or under another name, and files of any bytes.

use super::*;
use safetensors::tensor::TensorView;
use std::sync::LazyLock;

static BACKEND: LazyLock<CpuBackend> = LazyLock::new(runner::backend);

/// A copy of a folder of one file, its tensors changed or (`None`) left out.
fn rewritten<'a>(
    model: &str,
    bytes: &'a [u8],
    change: impl Fn(&str, TensorView<'a>) -> Option<(String, TensorView<'a>)>,
) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.json");
    fs::copy(golden(model).join("config.json"), config).unwrap();
    let file = SafeTensors::deserialize(bytes).unwrap();
    let tensors = file.tensors();
    let tensors = tensors
        .into_iter()
        .filter_map(|(name, view)| change(&name, view));
    let bytes = safetensors::serialize(tensors, None).unwrap();
    fs::write(folder.path().join("model.safetensors"), bytes).unwrap();
    folder
}

fn load_refusal(files: &ModelFiles) -> String {
    let limits = StepLimits {
        max_tokens: 4,
        max_logit_rows: 1,
    };
    let refused = load(&*BACKEND, files, BACKEND.activation_dtype(), limits).unwrap_err();
    refused.to_string()
}

#[test]
fn a_missing_tensor_is_named() {
    let mut files = ModelFiles::open(&golden("tiny-llama")).unwrap();
    files.config.layers.push(files.config.layers[0]);
    let message = load_refusal(&files);
    assert!(message.contains("model.layers.3."), "{message}");
    assert!(message.contains("is missing"), "{message}");
}

#[test]
fn each_tensor_that_is_missing_or_of_a_wrong_shape_is_named() {
    for model in [
        "tiny-deepseek-v2",
        "tiny-deepseek-v3",
        "tiny-gemma3",
        "tiny-gpt-oss",
        "tiny-gpt-oss-mxfp4",
        "tiny-llama",
        "tiny-qwen2",
        "tiny-qwen3-5",
        "tiny-qwen3-5-moe",
        "tiny-qwen3-moe",
        "tiny-qwen3-next",
    ] {
        let bytes = fs::read(golden(model).join("model.safetensors")).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        // DeepSeek's drafts come after its other layers.
        let last = if model == "tiny-deepseek-v3" {
            "model.layers.3."
        } else {
            "mtp."
        };
        let is_read = |name: &&str| {
            !["mtp.", "model.visual.", last]
                .iter()
                .any(|other| name.starts_with(other))
        };
        for name in file.names().into_iter().filter(is_read) {
            let keep = |other: &str, view| Some((other.to_owned(), view));
            let without = rewritten(model, &bytes, |other, view| {
                (other != name).then(|| keep(other, view))?
            });
            let message = load_refusal(&ModelFiles::open(without.path()).unwrap());
            let expected = format!("tensor {name} is missing");
            assert!(message.contains(&expected), "{message}");

            let reshaped = rewritten(model, &bytes, |other, view| {
                let elements = view.shape().iter().product();
                // A matrix of one row may be written as a vector.
                let shape = if view.shape().len() == 1 || view.shape()[0] == 1 {
                    vec![elements, 1]
                } else {
                    vec![elements]
                };
                let other_shape = TensorView::new(view.dtype(), shape, view.data()).unwrap();
                keep(other, if other == name { other_shape } else { view })
            });
            let message = load_refusal(&ModelFiles::open(reshaped.path()).unwrap());
            assert!(message.contains(&format!("tensor {name} is ")), "{message}");
            assert!(
                message.contains("but the configuration asks for"),
                "{message}"
            );
        }
    }
}

/// A model may have the same layers under another family's name.
#[test]
fn a_mistral_without_a_window_is_a_llama() {
    let bytes = fs::read(golden("tiny-llama/model.safetensors")).unwrap();
    let keep = |name: &str, view| Some((name.to_owned(), view));
    let folder = rewritten("tiny-llama", &bytes, keep);
    let path = folder.path().join("config.json");
    let config = fs::read_to_string(&path).unwrap();
    let config = config
        .replace("LlamaForCausalLM", "MistralForCausalLM")
        .replace("\"llama\"", "\"mistral\"")
        .replace("\"mlp_bias\": false", "\"sliding_window\": null")
        .replace("\"pretraining_tp\": 1,", "");
    fs::write(&path, config).unwrap();
    let model = ModelFiles::open(folder.path()).unwrap().config;
    assert_eq!(model.family.name(), "mistral");
    let tokens: Vec<u32> = (5..25).collect();
    let rows = alone(folder.path().to_str().unwrap(), &tokens);
    assert_eq!(rows, alone("tiny-llama", &tokens));
}

/// The form of published files of models that see.
#[test]
fn a_configuration_with_towers_gives_the_same_logits() {
    let model = "tiny-qwen3-5";
    let bytes = fs::read(golden(model).join("model.safetensors")).unwrap();
    let folder = rewritten(model, &bytes, |name, view| {
        Some((name.replacen("model.", "model.language_model.", 1), view))
    });
    let path = folder.path().join("config.json");
    let mut text: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let tied = text["tie_word_embeddings"].take();
    text["architectures"].take();
    let whole = serde_json::json!({
        "model_type": "qwen3_5", "architectures": ["Qwen3_5ForConditionalGeneration"],
        "text_config": text, "vision_config": {"depth": 1}, "image_token_id": 380,
        "tie_word_embeddings": tied,
    });
    fs::write(&path, whole.to_string()).unwrap();
    let tokens: Vec<u32> = (5..25).collect();
    let rows = alone(folder.path().to_str().unwrap(), &tokens);
    assert_eq!(rows, alone(model, &tokens));
}

#[test]
fn a_decoder_beside_other_towers_gives_the_same_logits() {
    let bytes = fs::read(golden("tiny-llama/model.safetensors")).unwrap();
    let folder = rewritten("tiny-llama", &bytes, |name, view| {
        Some((name.replacen("model.", "model.language_model.", 1), view))
    });
    let tokens: Vec<u32> = (5..25).collect();
    let expected = alone("tiny-llama", &tokens);
    // An absolute path stands for itself.
    assert_eq!(alone(folder.path().to_str().unwrap(), &tokens), expected);
}

/// The matrices of a layer's experts one after another, as newer files of some families have them.
#[test]
fn experts_that_lie_in_one_tensor_give_the_same_logits() {
    let bytes = fs::read(golden("tiny-qwen3-moe/model.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let joined = |layer: usize, parts: &[&str]| -> Vec<u8> {
        let names = (0..8).flat_map(|expert| {
            let name =
                move |part| format!("model.layers.{layer}.mlp.experts.{expert}.{part}.weight");
            parts.iter().map(name)
        });
        let data = names.flat_map(|name| file.tensor(&name).unwrap().data().to_vec());
        data.collect()
    };
    let layers = [0, 2, 3].map(|layer| {
        (
            layer,
            joined(layer, &["gate_proj", "up_proj"]),
            joined(layer, &["down_proj"]),
        )
    });
    let mut tensors = file.tensors();
    tensors.retain(|(name, _)| !name.contains(".experts."));
    for (layer, gate_up, down) in &layers {
        for (name, shape, data) in [
            ("gate_up_proj", vec![8, 32, 64], gate_up),
            ("down_proj", vec![8, 64, 16], down),
        ] {
            let view = TensorView::new(safetensors::Dtype::BF16, shape, data).unwrap();
            tensors.push((format!("model.layers.{layer}.mlp.experts.{name}"), view));
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let config = golden("tiny-qwen3-moe/config.json");
    fs::copy(config, folder.path().join("config.json")).unwrap();
    let bytes = safetensors::serialize(tensors, None).unwrap();
    fs::write(folder.path().join("model.safetensors"), bytes).unwrap();
    let tokens: Vec<u32> = (5..45).collect();
    let expected = alone("tiny-qwen3-moe", &tokens);
    assert_eq!(alone(folder.path().to_str().unwrap(), &tokens), expected);
}

/// Opens and loads what may be no model; only a panic is wrong.
fn try_load(path: &Path) {
    let limits = StepLimits {
        max_tokens: 4,
        max_logit_rows: 1,
    };
    if let Ok(files) = ModelFiles::open(path) {
        let _model_or_refusal = load(&*BACKEND, &files, BACKEND.activation_dtype(), limits);
    }
}

/// Bytes to put at places of a file's header.
type Damage = Vec<(prop::sample::Index, u8)>;

fn damage() -> impl Strategy<Value = Damage> {
    prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)
}

fn damaged(path: &Path, header_len: usize, damage: &Damage) -> Vec<u8> {
    let mut bytes = fs::read(path).unwrap();
    let len = bytes.len().min(header_len);
    for (at, byte) in damage {
        bytes[at.index(len)] = *byte;
    }
    bytes
}

proptest! {
    #[test]
    fn a_damaged_gguf_file_is_refused_or_loads(damage in damage()) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.gguf");
        let bytes = damaged(&golden("tiny-gguf/llama-q4_0.gguf"), 12_000, &damage);
        fs::write(&path, bytes).unwrap();
        try_load(&path);
        let _text_or_refusal = crate::text::load(&path);
    }

    #[test]
    fn a_damaged_folder_is_refused_or_loads(
        damage in damage(),
        target in prop::sample::select(vec!["config.json", "model.safetensors"]),
    ) {
        let folder = tempfile::tempdir().unwrap();
        for file in ["config.json", "model.safetensors"] {
            fs::copy(golden("tiny-llama").join(file), folder.path().join(file)).unwrap();
        }
        let bytes = damaged(&golden("tiny-llama").join(target), 3_000, &damage);
        fs::write(folder.path().join(target), bytes).unwrap();
        try_load(folder.path());
    }
}
