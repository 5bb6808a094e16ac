//! Which files are a model's.

use super::*;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("golden")
        .join(name)
}

#[test]
fn every_file_that_decides_what_kv_means_is_listed() {
    let names = |path: &str| -> Vec<String> {
        let files = ModelFiles::open(&golden(path)).unwrap().files();
        let name = |file: &PathBuf| file.file_name().unwrap().to_string_lossy().into_owned();
        files.iter().map(name).collect()
    };
    assert_eq!(
        names("tiny-qwen3"),
        [
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "tokenizer.json",
            "tokenizer_config.json",
            "chat_template.jinja",
        ]
    );
    assert_eq!(names("tiny-gguf/llama-q4_0.gguf"), ["llama-q4_0.gguf"]);
}

#[test]
fn a_folder_with_one_gguf_file_is_that_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("m.GGUF");
    fs::copy(golden("tiny-gguf/llama-q4_0.gguf"), &file).unwrap();
    fs::write(folder.path().join("README.md"), "").unwrap();
    let found = ModelPath::resolve(folder.path()).unwrap();
    assert_eq!(found, ModelPath::Gguf(file));
}
