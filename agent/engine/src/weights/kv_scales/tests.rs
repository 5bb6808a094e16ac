//! Where files have scales of keys and values, and which are refused.

use super::super::{Safetensors, names};
use super::*;
use safetensors::Dtype;
use safetensors::tensor::TensorView as View;

fn weights(scales: &[(&str, f32)]) -> (tempfile::TempDir, Weights) {
    let bytes: Vec<_> = scales
        .iter()
        .map(|(_, scale)| scale.to_le_bytes())
        .collect();
    let names = scales
        .iter()
        .map(|(name, _)| format!("model.layers.1.self_attn.{name}"));
    let views = bytes
        .iter()
        .map(|bytes| View::new(Dtype::F32, vec![], bytes).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let file = safetensors::serialize(names.zip(views), None).unwrap();
    std::fs::write(folder.path().join("model.safetensors"), file).unwrap();
    let files = Safetensors::open(folder.path()).unwrap();
    (folder, Weights::of_folder(files, names::hf, None))
}

#[test]
fn scales_lie_beside_the_projections_or_in_them() {
    for names in [["k_scale", "v_scale"], ["k_proj.k_scale", "v_proj.v_scale"]] {
        let (_folder, weights) = weights(&[(names[0], 0.5), (names[1], 2.0)]);
        let expected = KvScales { k: 0.5, v: 2.0 };
        let (scales, tensors) = weights.kv_scales(1).unwrap();
        assert_eq!(scales, expected);
        assert!(
            tensors
                .iter()
                .zip(names)
                .all(|(tensor, name)| tensor.ends_with(name))
        );
        assert_eq!(weights.kv_scales(0).unwrap(), (KvScales::ONE, Vec::new()));
    }
}

#[test]
fn a_scale_that_is_no_positive_number_is_named() {
    for scale in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        let (_folder, weights) = weights(&[("k_scale", scale)]);
        let message = weights.kv_scales(1).unwrap_err().to_string();
        let expected = format!("tensor model.layers.1.self_attn.k_scale is {scale:e}, expected");
        assert!(message.contains(&expected), "{message}");
    }
}
