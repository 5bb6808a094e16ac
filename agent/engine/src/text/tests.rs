//! The text side of a whole model, from both kinds of file.

use super::*;
use std::path::{Path, PathBuf};

pub(crate) fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("golden")
        .join(name)
}

#[test]
fn folder_and_gguf_give_the_same_prompt_and_ids() {
    let (hf, hf_template) = load(&golden("tiny-llama")).unwrap();
    let (gguf, gguf_template) = load(&golden("tiny-gguf/llama-q8_0.gguf")).unwrap();
    let turns = [
        ("system", "Count the pages."),
        ("user", "How many, 1 or 2?\n"),
    ];
    let messages = turns.map(|(role, content)| Message::new(role, content));
    let kwargs = serde_json::Map::new();
    let conversation = Conversation {
        messages: &messages,
        tools: &[],
        kwargs: &kwargs,
    };
    let render = |template: Option<ChatTemplate>| {
        template
            .expect("it has a template")
            .render(conversation, true)
            .unwrap()
    };
    let prompt = render(hf_template);
    assert_eq!(
        prompt,
        "<|im_start|>system\nCount the pages.<|im_end|>\n\
         <|im_start|>user\nHow many, 1 or 2?\n<|im_end|>\n<|im_start|>assistant\n"
    );
    assert_eq!(render(gguf_template), prompt);
    let ids = hf.encode(&prompt, false).unwrap();
    assert_eq!(gguf.encode(&prompt, false).unwrap(), ids);
    assert_eq!(ids.iter().filter(|&&id| id == 1).count(), 3, "{ids:?}");
    assert_eq!(hf.decode(&ids, false), prompt);
    assert!(!hf.decode(&ids, true).contains("<|im_start|>"));
}

#[test]
fn a_path_without_a_model_is_refused_with_what_is_expected() {
    let folder = tempfile::tempdir().unwrap();
    let message = load(folder.path()).unwrap_err().to_string();
    assert!(
        message.ends_with("expected a .gguf file, or a folder with config.json or one .gguf file")
    );
    let message = load(&golden("tiny-gguf")).unwrap_err().to_string();
    assert!(
        message.ends_with("holds 12 .gguf files and no config.json; give the path of one of them")
    );
    let message = load(Path::new("no/model")).unwrap_err().to_string();
    assert!(
        message.starts_with("cannot read the model path no/model"),
        "{message}"
    );
}
