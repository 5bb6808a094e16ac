//! Hostile messages for honest chat templates, and hostile templates as far as they are compiled: what one writes is
//! its model's, and may be long.

use super::*;
use crate::text::tests::golden;
use pd_fuzz::{Memory, fuzz};
use std::sync::LazyLock;
use std::time::UNIX_EPOCH;

/// Values that templates make, and the prompt, in a buffer that doubles.
const MESSAGES: Memory = Memory {
    base: 1 << 20,
    per_byte: 2048,
};
/// Syntax trees and instructions.
const SOURCE: Memory = Memory {
    base: 1 << 20,
    per_byte: 2048,
};

static TOKENIZER: LazyLock<Tokenizer> =
    LazyLock::new(|| Tokenizer::from_folder(&golden("tiny-llama")).expect("the golden tokenizer"));

/// What templates of models use: roles, tools, calls, dates, and raising.
const HONEST: &[&str] = &[
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content.strip() }}{% endfor %}{% if add_generation_prompt %}<|a|>{% endif %}",
    "{% if tools %}{{ tools | tojson(indent=indent) }}{% endif %}{% for m in messages %}{% for c in m.tool_calls or [] %}\
     {{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}{{ m.content.split('</think>')[-1].lstrip('\\n') }}{% endfor %}",
    "{% if messages[0].role != 'system' %}{{ raise_exception('no system') }}{% endif %}{{ strftime_now(format) }}\
     {{ messages | map(attribute='content') | join(',') }}{{ name.title() }}",
];

static TEMPLATES: LazyLock<Vec<ChatTemplate>> = LazyLock::new(|| {
    let compile = |source: &&str| compiled(source).expect("an honest template");
    HONEST.iter().map(compile).collect()
});

fn compiled(source: &str) -> Option<ChatTemplate> {
    let source = Source::from(source.to_owned());
    ChatTemplate::compile(PathBuf::from("m.jinja"), source, &TOKENIZER).ok()
}

/// A JSON object: `messages` and `tools` as the API reads them, and the variables of the client.
#[test]
fn chat_messages() {
    LazyLock::force(&TEMPLATES);
    fuzz!("chat_messages", MESSAGES, |bytes| {
        let Ok(mut variables) = serde_json::from_slice::<Map<String, serde_json::Value>>(bytes)
        else {
            return;
        };
        let given = variables.remove("messages").unwrap_or_default();
        let given = given.as_array().cloned().unwrap_or_default();
        let messages: Vec<Message> = given.into_iter().map(message).collect();
        let tools = variables.remove("tools").unwrap_or_default();
        let tools = tools.as_array().cloned().unwrap_or_default();
        let tools: Vec<Value> = tools.into_iter().map(Value::from_serialize).collect();
        let conversation = Conversation {
            messages: &messages,
            tools: &tools,
            kwargs: &variables,
        };
        for template in TEMPLATES.iter() {
            let _ = template.render_at(UNIX_EPOCH, conversation, true);
            let _ = template.render_continued(conversation);
        }
    });
}

fn message(value: serde_json::Value) -> Message {
    let serde_json::Value::Object(mut fields) = value else {
        return Message::new("user", value.to_string());
    };
    let mut text = |name: &str| fields.remove(name)?.as_str().map(str::to_owned);
    let (role, content) = (text("role"), text("content"));
    let message = Message::new(role.unwrap_or_default(), content.unwrap_or_default());
    message.with_fields(
        fields
            .into_iter()
            .map(|(name, value)| (name, Value::from_serialize(value))),
    )
}

#[test]
fn chat_template() {
    LazyLock::force(&TOKENIZER);
    fuzz!("chat_template", SOURCE, |bytes| {
        let _ = std::str::from_utf8(bytes).ok().and_then(compiled);
    });
}
