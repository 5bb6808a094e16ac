//! Chat templates of published models, whose prompts transformers wrote, too: `make templates`.

use super::*;
use crate::text::tests::golden;
use serde::Deserialize;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

#[derive(Deserialize)]
struct Published {
    name: String,
    source: String,
    prompts: Vec<Prompt>,
}

#[derive(Deserialize)]
struct Prompt {
    case: String,
    messages: Vec<BTreeMap<String, Value>>,
    tools: Option<Vec<Value>>,
    kwargs: Option<Map<String, Json>>,
    add_generation_prompt: Option<bool>,
    /// `None` where transformers refuses.
    prompt: Option<String>,
}

fn message(mut fields: BTreeMap<String, Value>) -> Message {
    let mut text = |name: &str| match fields.remove(name) {
        Some(value) => value.as_str().unwrap_or_default().to_owned(),
        None => String::new(),
    };
    let (role, content) = (text("role"), text("content"));
    Message::new(role, content).with_fields(fields)
}

impl Prompt {
    /// What is written here, and by transformers.
    fn render(self, template: &ChatTemplate) -> (Result<String, TemplateError>, Option<String>) {
        let day = UNIX_EPOCH + Duration::from_secs(1_721_908_800);
        let messages: Vec<Message> = self.messages.into_iter().map(message).collect();
        let conversation = Conversation {
            messages: &messages,
            tools: &self.tools.unwrap_or_default(),
            kwargs: &self.kwargs.unwrap_or_default(),
        };
        let opens_answer = self.add_generation_prompt.unwrap_or(true);
        let rendered = template.render_at(day, conversation, opens_answer);
        (rendered, self.prompt)
    }
}

/// Both prompts from a little before where they part.
fn difference(place: &str, ours: &Result<String, TemplateError>, theirs: &str) -> String {
    let ours = match ours {
        Ok(ours) => ours.as_str(),
        Err(why) => return format!("{place}: {why}"),
    };
    let pairs = ours.chars().zip(theirs.chars());
    let equal = pairs.take_while(|(a, b)| a == b).count();
    let shown = |text: &str| -> String {
        text.chars()
            .skip(equal.saturating_sub(60))
            .take(140)
            .collect()
    };
    format!("{place}:\n  {:?}\n  {:?}", shown(ours), shown(theirs))
}

#[test]
fn published_templates_write_what_transformers_writes() {
    let Some(file) = std::env::var_os("PDSERVE_TEMPLATES") else {
        return;
    };
    let published: Vec<Published> = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let tokenizer = Tokenizer::from_folder(&golden("tiny-llama")).unwrap();
    let (mut equal, mut different) = (0, Vec::new());
    for Published {
        name,
        source,
        prompts,
    } in published
    {
        let source = Source::from(source);
        let compiled = ChatTemplate::compile(PathBuf::from(&name), source, &tokenizer);
        for prompt in prompts {
            let case = prompt.case.clone();
            let (ours, theirs) = match &compiled {
                Ok(template) => prompt.render(template),
                Err(why) => {
                    let reason = why.to_string();
                    (Err(TemplateError::Render { reason }), prompt.prompt)
                }
            };
            // What transformers refuses may be written here, and is no promise. This one marks text as safe HTML, by which
            // Jinja escapes what it adds to it: here, no text is HTML.
            let is_safe_html = name == "meetkai-functionary-medium-v3.1";
            let Some(theirs) = theirs.filter(|_| !is_safe_html) else {
                continue;
            };
            match ours {
                Ok(ours) if ours == theirs => equal += 1,
                ours => different.push(difference(&format!("{name}, {case}"), &ours, &theirs)),
            }
        }
    }
    println!("{equal} prompts are equal, {} differ", different.len());
    assert!(different.is_empty(), "{}", different.join("\n\n"));
}
