//! Features available to templates, and their failures.

use super::*;
use crate::text::tests::golden;
use serde_json::{Value as Json, json};
use std::sync::LazyLock;
use std::time::{Duration, UNIX_EPOCH};

fn template(source: &str) -> Result<ChatTemplate, TemplateError> {
    let tokenizer = Tokenizer::from_folder(&golden("tiny-llama")).unwrap();
    let source = Source::from(source.to_owned());
    ChatTemplate::compile(PathBuf::from("m.jinja"), source, &tokenizer)
}

fn said(messages: &[Message]) -> Conversation<'_> {
    static NO_KWARGS: LazyLock<Map<String, Json>> = LazyLock::new(Map::new);
    Conversation {
        messages,
        tools: &[],
        kwargs: &NO_KWARGS,
    }
}

fn render_with(source: &str, kwargs: Json) -> Result<String, TemplateError> {
    let messages = [
        Message::new("system", " Be brief. "),
        Message::new("user", "Hi"),
    ];
    let day = UNIX_EPOCH + Duration::from_secs(1_721_908_800);
    let conversation = Conversation {
        kwargs: kwargs.as_object().unwrap(),
        ..said(&messages)
    };
    template(source)?.render_at(day, conversation, true)
}

fn render(source: &str) -> String {
    render_with(source, json!({})).unwrap()
}

#[test]
fn pythons_methods_and_loop_controls_work() {
    assert_eq!(render("{{ messages[0].content.strip() }}"), "Be brief.");
    assert_eq!(
        render("{{ messages[0]['role'].startswith('sys') }}"),
        "True"
    );
    assert_eq!(
        render(
            "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m.role }}{% endfor %}"
        ),
        "user"
    );
}

#[test]
fn blocks_leave_no_lines_behind() {
    let source = "{% for m in messages %}\n  {% if m.role == 'user' %}\n{{ m.content }}\n  {% endif %}\n{% endfor %}\n";
    assert_eq!(render(source), "Hi\n");
}

#[test]
fn special_tokens_and_the_generation_prompt_are_there() {
    assert_eq!(
        render("{{ bos_token }}{{ eos_token }}{{ add_generation_prompt }}"),
        "<|im_start|><|im_end|>True"
    );
}

#[test]
fn the_clients_variables_reach_the_template() {
    let source = "{% if enable_thinking is defined and not enable_thinking %}quiet{% endif %}";
    assert_eq!(
        render_with(source, json!({"enable_thinking": false})).unwrap(),
        "quiet"
    );
    assert_eq!(render(source), "");
}

const TURNS: &str = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";

fn continued(source: &str, last: &str) -> Result<String, TemplateError> {
    let messages = [
        Message::new("user", "Say Bonj"),
        Message::new("assistant", last),
    ];
    template(source)?.render_continued(said(&messages))
}

#[test]
fn a_continued_message_stays_open() {
    assert_eq!(
        continued(TURNS, "Bonj").unwrap(),
        "<user>Say Bonj</><assistant>Bonj"
    );
    assert!(
        continued(TURNS, "Bonj ")
            .unwrap()
            .ends_with("<assistant>Bonj ")
    );
    let trimming = TURNS.replace("m.content", "m.content | trim");
    assert!(
        continued(&trimming, "Bonj ")
            .unwrap()
            .ends_with("<assistant>Bonj")
    );
}

#[test]
fn a_message_that_cannot_be_continued_is_refused() {
    let refusal = |source: &str, last: &str| continued(source, last).unwrap_err().to_string();
    assert!(refusal(TURNS, " ").ends_with("it has no text"));
    let upper = TURNS.replace("m.content", "m.content | upper");
    assert!(refusal(&upper, "Bonj").ends_with("does not write its text unchanged"));
}

#[test]
fn tool_history_and_names_reach_the_template() {
    let source = "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.name }}({{ c.function.arguments.city }}){% endfor %}{% if m.role == 'tool' %}{{ m.tool_call_id }}={{ m.content }}{% endif %}{{ m.name }}{% endfor %}";
    let fields = |json: &str| -> std::collections::BTreeMap<String, TemplateValue> {
        serde_json::from_str(json).unwrap()
    };
    let call = r#"{"tool_calls": [{"id": "c1", "function": {"name": "weather", "arguments": "{\"city\": \"Rome\"}"}}]}"#;
    let messages = [
        Message::new("user", "?").with_fields(fields(r#"{"name": "ada;"}"#)),
        Message::new("assistant", "").with_fields(fields(call)),
        Message::new("tool", "warm").with_fields(fields(r#"{"tool_call_id": "c1"}"#)),
    ];
    let template = template(source).unwrap();
    assert_eq!(
        template.render(said(&messages), true).unwrap(),
        "ada;weather(Rome)c1=warm"
    );
}

fn with_tool(template: &ChatTemplate) -> String {
    let tool = r#"{"type": "function", "function": {"name": "f", "description": "Does"}}"#;
    let tools: [TemplateValue; 1] = [serde_json::from_str(tool).unwrap()];
    let conversation = Conversation {
        tools: &tools,
        ..said(&[])
    };
    template.render(conversation, true).unwrap()
}

#[test]
fn tools_reach_the_template_as_they_were_given() {
    let source = "{% if tools is not none %}{{ tools | tojson }}{% else %}none{% endif %}";
    assert_eq!(render(source), "none");
    let template = template(source).unwrap();
    let tool = r#"[{"type": "function", "function": {"name": "f", "description": "Does"}}]"#;
    assert_eq!(with_tool(&template), tool);
    assert_eq!(template.source_with_tools().as_deref(), Some(source));
}

#[test]
fn a_template_of_its_own_for_tools_is_used_with_tools() {
    let tokenizer = Tokenizer::from_folder(&golden("tiny-llama")).unwrap();
    let source = Source {
        default: "plain".to_owned(),
        with_tools: Some("{{ tools[0].function.name }}".to_owned()),
    };
    let both = ChatTemplate::compile(PathBuf::from("m.jinja"), source, &tokenizer).unwrap();
    assert_eq!(with_tool(&both), "f");
    assert_eq!(both.render(said(&[]), true).unwrap(), "plain");
    assert_eq!(template("plain").unwrap().source_with_tools(), None);
}

#[test]
fn json_is_written_as_python_writes_it() {
    let tools = json!({"tools": [{"name": "f", "args": {"x": 1, "é": "<a>"}}]});
    assert_eq!(
        render_with("{{ tools | tojson }}", tools.clone()).unwrap(),
        r#"[{"name": "f", "args": {"x": 1, "é": "<a>"}}]"#
    );
    assert_eq!(
        render_with("{{ tools[0].args | tojson(indent=2) }}", tools).unwrap(),
        "{\n  \"x\": 1,\n  \"é\": \"<a>\"\n}"
    );
}

#[test]
fn marks_of_what_a_model_wrote_are_passed_over() {
    let source =
        "a\n  {%- generation -%}\n  b\n{%  endgeneration %}\nc{%+generation+%}d{% endgeneration%}";
    assert_eq!(render(source), "ab\ncd");
}

#[test]
fn none_is_not_iterable_and_json_may_be_ascii() {
    let source = "{% if tools is iterable and tools | length > 0 %}some{% else %}no{% endif %}";
    assert_eq!(render(source), "no");
    let x = json!({"x": "é🦙"});
    assert_eq!(
        render_with("{{ x | tojson(ensure_ascii=true) }}", x).unwrap(),
        r#""\u00e9\ud83e\udd99""#
    );
    let tool = json!({"x": {"a": ["b", true]}});
    let written = render_with("{{ x }}{{ x.a | string }}{{ x.a | upper }}", tool).unwrap();
    assert_eq!(written, "{'a': ['b', True]}['b', True]['B', TRUE]");
}

#[test]
fn the_date_is_the_one_given() {
    assert_eq!(render("{{ strftime_now('%d %b %Y') }}"), "25 Jul 2024");
}

#[test]
fn what_a_template_raises_is_reported_in_its_words() {
    let error = render_with("{{ raise_exception('roles must alternate') }}", json!({}));
    let message = error.unwrap_err().to_string();
    assert!(message.contains("roles must alternate"), "{message}");
}

#[test]
fn a_broken_template_is_refused_when_it_is_loaded() {
    let message = template("{% for m in %}").unwrap_err().to_string();
    assert!(message.starts_with("m.jinja: "), "{message}");
}

#[test]
fn a_template_that_never_ends_is_stopped() {
    let source = "{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}";
    render_with(source, json!({})).unwrap_err();
}
