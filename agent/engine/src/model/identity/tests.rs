//! Which changes make another model.

use std::fs;
use std::path::{Path, PathBuf};

use super::*;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("golden")
        .join(name)
}

fn identity(path: &Path) -> ModelIdentity {
    let files = ModelFiles::open(path).unwrap();
    IdentityTask::spawn(&files, &DigestCache::new(None))
        .unwrap()
        .wait()
        .unwrap()
}

#[test]
fn a_copy_elsewhere_is_the_same_model_and_a_changed_file_is_not() {
    let folder = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(golden("tiny-qwen3")).unwrap() {
        let file = entry.unwrap().path();
        fs::copy(&file, folder.path().join(file.file_name().unwrap())).unwrap();
    }
    let original = identity(&golden("tiny-qwen3"));
    assert_eq!(identity(folder.path()), original);

    let template = folder.path().join("chat_template.jinja");
    fs::write(&template, "{{ messages }}").unwrap();
    assert_ne!(identity(folder.path()), original);
    fs::copy(golden("tiny-qwen3/chat_template.jinja"), &template).unwrap();
    assert_eq!(identity(folder.path()), original);

    let shard = folder.path().join("model-00002-of-00002.safetensors");
    let mut bytes = fs::read(&shard).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&shard, bytes).unwrap();
    assert_ne!(identity(folder.path()), original);
}

#[test]
fn formats_of_one_model_differ() {
    assert_ne!(
        identity(&golden("tiny-gguf/llama-q4_0.gguf")),
        identity(&golden("tiny-gguf/llama-q4_1.gguf"))
    );
}
