//! What templates may use, and how they fail.

use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value as Json, json};

use super::*;
use crate::text::tests::golden;

fn template(source: &str) -> Result<ChatTemplate, TemplateError> {
    let tokenizer = Tokenizer::from_folder(&golden("tiny-llama")).unwrap();
    ChatTemplate::compile(PathBuf::from("m.jinja"), source.to_owned(), &tokenizer)
}

fn render_with(source: &str, kwargs: Json) -> Result<String, TemplateError> {
    let message = |role: &str, content: &str| Message {
        role: role.to_owned(),
        content: content.to_owned(),
    };
    let messages = [message("system", " Be brief. "), message("user", "Hi")];
    let day = UNIX_EPOCH + Duration::from_secs(1_721_908_800);
    let kwargs = kwargs.as_object().unwrap();
    template(source)?.render_at(day, &messages, true, kwargs)
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

#[test]
fn json_is_written_as_python_writes_it() {
    let tools = json!({"tools": [{"name": "f", "args": {"x": 1, "é": "<a>"}}]});
    assert_eq!(
        render_with("{{ tools | tojson }}", tools.clone()).unwrap(),
        r#"[{"args": {"x": 1, "é": "<a>"}, "name": "f"}]"#
    );
    assert_eq!(
        render_with("{{ tools[0].args | tojson(indent=2) }}", tools).unwrap(),
        "{\n  \"x\": 1,\n  \"é\": \"<a>\"\n}"
    );
}

#[test]
fn the_date_is_the_one_given() {
    assert_eq!(render("{{ strftime_now('%d %b %Y') }}"), "25 Jul 2024");
}

#[test]
fn what_a_template_raises_is_told_in_its_words() {
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
