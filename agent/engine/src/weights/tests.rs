//! Tensors by role, from both kinds of file.

use super::*;
use std::path::Path;

fn golden(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("golden")
        .join(name)
}

#[test]
fn unpermuted_gguf_rows_are_the_hugging_face_rows() {
    let hf = Weights::Hf(Safetensors::open(&golden("tiny-llama")).unwrap());
    let gguf = Weights::Gguf(Gguf::open(&golden("tiny-gguf/llama-f32.gguf")).unwrap());
    for (role, heads) in [(TensorRole::Q(1), 4), (TensorRole::K(2), 2)] {
        let (rows, columns) = (heads * 16, 64);
        let expected = hf.matrix(role, rows, columns).unwrap();
        let stored = gguf.matrix(role, rows, columns).unwrap();
        assert_ne!(stored.bytes, expected.bytes);
        assert_eq!(stored.unpermuted(heads).bytes, expected.bytes);
    }
}

#[test]
fn a_vector_is_read_in_each_float_format() {
    let hf = Weights::Hf(Safetensors::open(&golden("tiny-qwen3")).unwrap());
    let norm = hf.vector(TensorRole::OutputNorm, 96).unwrap();
    assert!(norm.iter().any(|value| (value - 1.0).abs() > 0.1));
    assert!(norm.iter().all(|value| (value - 1.0).abs() < 2.0));
}

#[test]
fn a_wrong_shape_and_a_missing_tensor_are_named() {
    let weights = Weights::Gguf(Gguf::open(&golden("tiny-gguf/llama-q8_0.gguf")).unwrap());
    let message = weights
        .matrix(TensorRole::Q(0), 128, 64)
        .unwrap_err()
        .to_string();
    assert!(
        message.ends_with(
            "tensor blk.0.attn_q.weight is 64×64, but the configuration asks for 128×64"
        ),
        "{message}"
    );
    let message = weights
        .matrix(TensorRole::QNorm(0), 1, 16)
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("tensor blk.0.attn_q_norm.weight is missing"),
        "{message}"
    );
    let message = weights
        .vector(TensorRole::Up(0), 64)
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("blk.0.ffn_up.weight is 160×64"),
        "{message}"
    );
}
