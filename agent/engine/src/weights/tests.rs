//! Tensors by role, from both kinds of file.

use super::*;
use std::path::Path;

fn golden(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("golden")
        .join(name)
}

fn hf(folder: &Path) -> Weights {
    Weights::of_folder(Safetensors::open(folder).unwrap(), names::hf, None)
}

fn gguf(file: &str, permuted_qk: bool) -> Weights {
    Weights::Gguf {
        file: Gguf::open(&golden(file)).unwrap(),
        names: names::gguf,
        permuted_qk,
    }
}

#[test]
fn unpermuted_gguf_rows_are_the_hugging_face_rows() {
    let hf = hf(&golden("tiny-llama"));
    let stored = gguf("tiny-gguf/llama-f32.gguf", false);
    let rotated = gguf("tiny-gguf/llama-f32.gguf", true);
    for (role, heads) in [
        (Role::Layer(1, LayerRole::Q), 4),
        (Role::Layer(2, LayerRole::K), 2),
    ] {
        let shape = (heads, 16);
        let expected = hf.rotated(role, shape, 64).unwrap();
        let as_stored = stored.rotated(role, shape, 64).unwrap();
        assert_ne!(as_stored.source().bytes, expected.source().bytes);
        let unpermuted = rotated.rotated(role, shape, 64).unwrap();
        assert_eq!(unpermuted.source().bytes, expected.source().bytes);
    }
}

#[test]
fn a_vector_is_read_in_each_float_format() {
    let norm = hf(&golden("tiny-qwen3"))
        .vector(Role::OutputNorm, 96)
        .unwrap();
    assert!(norm.iter().any(|value| (value - 1.0).abs() > 0.1));
    assert!(norm.iter().all(|value| (value - 1.0).abs() < 2.0));
}

#[test]
fn a_wrong_shape_and_a_missing_tensor_are_named() {
    let weights = gguf("tiny-gguf/llama-q8_0.gguf", true);
    let layer = |role| Role::Layer(0, role);
    let message = weights.matrix(layer(LayerRole::Q), 128, 64).unwrap_err();
    let expected = "tensor blk.0.attn_q.weight is 64×64, but the configuration asks for 128×64";
    assert!(message.to_string().ends_with(expected), "{message}");
    let message = weights.matrix(layer(LayerRole::QNorm), 1, 16).unwrap_err();
    let expected = "tensor blk.0.attn_q_norm.weight is missing";
    assert!(message.to_string().contains(expected), "{message}");
    let message = weights.vector(layer(LayerRole::Up), 64).unwrap_err();
    let expected = "blk.0.ffn_up.weight is 160×64";
    assert!(message.to_string().contains(expected), "{message}");
}

#[test]
fn a_decoder_in_a_multimodal_folder_is_found_by_its_ends() {
    for (tensor, prefix) in [
        ("model.embed_tokens.weight", "model."),
        (
            "model.language_model.embed_tokens.weight",
            "model.language_model.",
        ),
        ("language_model.model.norm.weight", "language_model.model."),
        ("transformer.wte.weight", "model."),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let info = serde_json::json!({"dtype": "F32", "shape": [1, 1], "data_offsets": [0, 4]});
        let header = serde_json::json!({ tensor: info }).to_string();
        let length = (header.len() as u64).to_le_bytes();
        let bytes = [&length, header.as_bytes(), &[0; 4]].concat();
        std::fs::write(folder.path().join("model.safetensors"), bytes).unwrap();
        let norm = hf(folder.path()).name(Role::OutputNorm).unwrap();
        assert_eq!(norm, format!("{prefix}norm.weight"));
    }
}
