//! Safetensors headers and indices: whole, truncated, corrupt and hostile.

use super::shard::read_header;
use super::*;
use proptest::prelude::*;
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("golden")
        .join(name)
}

/// A folder with one `model.safetensors` of the given header and data.
fn folder_of(header: &str, data: &[u8]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    fs::write(folder.path().join(SINGLE_FILE), bytes).unwrap();
    folder
}

fn refusal(folder: &Path) -> String {
    Safetensors::open(folder)
        .expect_err("must be refused")
        .to_string()
}

#[test]
fn shards_are_found_through_the_index() {
    let model = Safetensors::open(&golden("tiny-qwen3")).unwrap();
    assert_eq!(model.shards.len(), 2);
    let head = model.tensor("lm_head.weight").unwrap().unwrap();
    assert_eq!(
        (head.rows, head.columns, head.format),
        (384, 96, WeightFormat::BF16)
    );
    let norm = model
        .tensor("model.layers.2.self_attn.k_norm.weight")
        .unwrap()
        .unwrap();
    assert_eq!((norm.rows, norm.columns), (1, 32));
}

#[test]
fn a_truncated_file_is_refused_with_both_lengths() {
    let bytes = fs::read(golden("tiny-llama/model.safetensors")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(SINGLE_FILE);
    fs::write(&file, &bytes[..bytes.len() - 10]).unwrap();
    let message = refusal(folder.path());
    assert!(message.contains("but the data has"), "{message}");
    fs::write(&file, &bytes[..100]).unwrap();
    let message = refusal(folder.path());
    assert!(
        message.contains("ends inside the header at byte 8"),
        "{message}"
    );
    fs::write(&file, b"").unwrap();
    let message = refusal(folder.path());
    assert!(message.contains("the file is empty"), "{message}");
}

#[test]
fn a_header_that_is_no_json_is_refused() {
    let message = refusal(folder_of("{\"a\": ", b"").path());
    assert!(
        message.contains("the header (bytes 8 to 14) is not valid"),
        "{message}"
    );
}

#[test]
fn a_dtype_that_no_op_reads_is_refused_when_its_tensor_is_asked_for() {
    let header = r#"{"w":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},
                     "v":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}}"#;
    let folder = folder_of(header, &[0; 12]);
    let model = Safetensors::open(folder.path()).unwrap();
    assert_eq!(
        model.tensor("v").unwrap().unwrap().format,
        WeightFormat::F32
    );
    let message = model.tensor("w").unwrap_err().to_string();
    assert!(
        message.ends_with(
            "tensor w has dtype I64; supported: F32, F16, BF16, and F8_E4M3 of matrices"
        ),
        "{message}"
    );
}

#[test]
fn an_index_that_leads_out_of_the_folder_is_refused() {
    for name in ["../x.safetensors", "/etc/passwd", "a/b", ".."] {
        let folder = tempfile::tempdir().unwrap();
        let index = format!("{{\"weight_map\": {{\"w\": \"{name}\"}}}}");
        fs::write(folder.path().join(INDEX_FILE), index).unwrap();
        let message = refusal(folder.path());
        assert!(message.contains("expected a file next to it"), "{message}");
    }
}

#[test]
fn a_folder_without_weights_says_what_it_lacks() {
    let folder = tempfile::tempdir().unwrap();
    assert!(refusal(folder.path()).contains("holds neither model.safetensors nor"));
}

#[test]
fn offsets_near_the_largest_number_are_refused() {
    let header = format!(
        r#"{{"a":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}},
            "b":{{"dtype":"U8","shape":[{0}],"data_offsets":[0,{0}]}}}}"#,
        u64::MAX / 8
    );
    assert!(refusal(folder_of(&header, &[]).path()).contains("but the data has 0 bytes"));
}

proptest! {
    /// For any bytes of a header, the parser answers: no panic, no tensor outside the file.
    #[test]
    fn mutated_headers_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = fs::read(golden("tiny-llama/model.safetensors")).unwrap();
        let (len, _) = read_header(Path::new("m"), &bytes).unwrap();
        for (at, byte) in changes {
            bytes[at.index(len)] = byte;
        }
        if let Ok((start, metadata)) = read_header(Path::new("m"), &bytes) {
            for info in metadata.tensors().values() {
                let (first, end) = info.data_offsets;
                prop_assert!(first <= end && start + end <= bytes.len());
            }
        }
    }
}
