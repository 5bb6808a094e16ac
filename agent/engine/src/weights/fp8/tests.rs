//! Codes and scales from files: which scale a value has, in which form, and what is refused.

use super::super::{ExpertsRole, Safetensors, names};
use super::*;
use safetensors::tensor::TensorView as View;
use tempfile::TempDir;

const ROLE: Role = Role::Layer(0, LayerRole::Down);
const NAME: &str = "model.layers.0.mlp.down_proj.weight";

/// 1 in all places.
const ONES: [u8; 15] = [0x38; 15];

fn blocks(rows: usize, columns: usize) -> Option<Fp8> {
    let len = |len| NonZero::new(len).unwrap();
    Some(Fp8::Blocks([len(rows), len(columns)]))
}

/// A folder with a matrix of 3 × 5, and a tensor beside it whose name goes on so.
fn mk(codes: &[u8], ending: &str, dtype: Dtype, shape: &[usize], scales: &[u8]) -> TempDir {
    let codes = View::new(Dtype::F8_E4M3, vec![3, 5], codes).unwrap();
    let scales = View::new(dtype, shape.to_vec(), scales).unwrap();
    let tensors = [
        (NAME.to_owned(), codes),
        (format!("{NAME}{ending}"), scales),
    ];
    let bytes = safetensors::serialize(tensors, None).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("model.safetensors"), bytes).unwrap();
    folder
}

fn open(folder: &TempDir, fp8: Option<Fp8>) -> Weights {
    let files = Safetensors::open(folder.path()).unwrap();
    Weights::of_folder(files, names::hf, fp8)
}

fn f32s(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

fn refusal(folder: &TempDir, fp8: Option<Fp8>) -> String {
    let weights = open(folder, fp8);
    weights.matrix(ROLE, 3, 5).unwrap_err().to_string()
}

#[test]
fn each_row_has_the_scales_of_its_blocks_in_any_order() {
    let scales = f32s(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let folder = mk(&ONES, "_scale_inv", Dtype::F32, &[2, 3], &scales);
    let weights = open(&folder, blocks(2, 2));
    let matrix = weights.matrix(ROLE, 3, 5).unwrap();
    let scale_len = NonZero::new(2).unwrap();
    assert_eq!(matrix.source().format, WeightFormat::F8E4M3 { scale_len });
    let [a, b] = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]];
    assert_eq!(matrix.source().scales, [a, a, b].concat());
    assert_eq!(matrix.part(1..3).scales, [a, b].concat());
    assert_eq!(matrix.part(1..3).bytes.len(), 10);
    let reordered = matrix.rows([2, 0].into_iter());
    assert_eq!(reordered.source().scales, [b, a].concat());
    assert_eq!(reordered.source().row_bytes().unwrap(), 5);
    let names: Vec<_> = reordered.names().collect();
    assert_eq!(names, [NAME, &format!("{NAME}_scale_inv")]);
}

#[test]
fn scales_are_read_in_every_form() {
    let bf16 = bf16::from_f32(0.5).to_le_bytes();
    let f16 = f16::from_f32(0.5).to_le_bytes();
    for (dtype, bytes) in [
        (Dtype::F32, &0.5f32.to_le_bytes()[..]),
        (Dtype::BF16, &bf16),
        (Dtype::F16, &f16),
        (Dtype::F8_E8M0, &[126]),
        (Dtype::U8, &[126]),
    ] {
        for (ending, shape, fp8) in [
            ("_scale_inv", &[1, 1][..], blocks(128, 128)),
            ("_scale", &[], Some(Fp8::WholeMatrix)),
            ("_scale_inv", &[1], Some(Fp8::WholeMatrix)),
        ] {
            let folder = mk(&ONES, ending, dtype, shape, bytes);
            let weights = open(&folder, fp8);
            let matrix = weights.matrix(ROLE, 3, 5).unwrap();
            assert_eq!(matrix.source().scales, [0.5; 3], "{dtype:?}");
            assert_eq!(matrix.source().row_bytes().unwrap(), 5);
        }
    }
    assert_eq!(power_of_two(0), 2f32.powi(-127));
    assert_eq!(power_of_two(254), 2f32.powi(127));
}

#[test]
fn what_is_no_number_is_named_with_its_place() {
    for nan in [0x7f, 0xff] {
        let mut codes = ONES;
        codes[11] = nan;
        let folder = mk(&codes, "_scale_inv", Dtype::F32, &[1, 1], &f32s(&[1.0]));
        let message = refusal(&folder, blocks(4, 8));
        let expected = format!("tensor {NAME} is no number at row 2, column 1;");
        assert!(message.contains(&expected), "{message}");
    }
    for scale in [f32::NAN, f32::INFINITY, -2e34] {
        let scales = f32s(&[1.0, 1.0, scale]);
        let folder = mk(&ONES, "_scale_inv", Dtype::F32, &[3, 1], &scales);
        let message = refusal(&folder, blocks(1, 8));
        let expected = format!("tensor {NAME}_scale_inv is {scale:e} at row 2, column 0;");
        assert!(message.contains(&expected), "{message}");
    }
    let folder = mk(&ONES, "_scale_inv", Dtype::F8_E8M0, &[1, 1], &[255]);
    let message = refusal(&folder, blocks(4, 8));
    assert!(message.contains("is NaN at row 0, column 0"), "{message}");
    // Places count over parts of the search.
    let mut codes = vec![0x7e; 3 * CODES_AT_ONCE];
    assert_eq!(nan_of(&codes), None);
    codes[2 * CODES_AT_ONCE + 7] = 0xff;
    assert_eq!(nan_of(&codes), Some(2 * CODES_AT_ONCE + 7));
}

#[test]
fn scales_that_are_not_said_missing_or_misshapen_are_refused() {
    let scales = f32s(&[1.0; 6]);
    let folder = mk(&ONES, "_scale_inv", Dtype::F32, &[2, 3], &scales);
    let message = refusal(&folder, None);
    assert!(
        message.contains("no quantization_config of quant_method fp8"),
        "{message}"
    );
    let message = refusal(&folder, blocks(1, 2));
    assert!(
        message.contains("is 2×3, but the configuration asks for 3×3"),
        "{message}"
    );
    let message = refusal(&folder, Some(Fp8::WholeMatrix));
    assert!(
        message.contains("is 2×3, but the configuration asks for 1×1"),
        "{message}"
    );
    let folder = mk(&ONES, "_scale", Dtype::F32, &[2, 3], &scales);
    let message = refusal(&folder, blocks(2, 2));
    assert!(
        message.contains(&format!("tensor {NAME}_scale_inv is missing")),
        "{message}"
    );
    let folder = mk(&ONES, "_scale_inv", Dtype::I32, &[2, 3], &scales);
    let message = refusal(&folder, blocks(2, 2));
    assert!(
        message.ends_with("dtype I32; supported: F32, F16, BF16, F8_E8M0, U8"),
        "{message}"
    );
    // A vector has no blocks.
    let weights = open(&folder, blocks(2, 2));
    let message = weights.vector(ROLE, 15).unwrap_err().to_string();
    assert!(message.contains("is 3×5"), "{message}");
}

#[test]
fn experts_in_one_tensor_are_refused() {
    let name = "model.layers.0.mlp.experts.down_proj";
    let codes = View::new(Dtype::F8_E4M3, vec![3, 5], &ONES).unwrap();
    let bytes = safetensors::serialize([(name, codes)], None).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("model.safetensors"), bytes).unwrap();
    let role = Role::Layer(0, LayerRole::Experts(ExpertsRole::Down));
    let weights = open(&folder, blocks(2, 2));
    let message = weights.matrix(role, 3, 5).unwrap_err().to_string();
    assert!(
        message.contains("a tensor for each expert is supported"),
        "{message}"
    );
}
