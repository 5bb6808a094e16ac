//! Tools that a request offers, and those that are refused.

use super::*;
use crate::service::answer_forms::tests::mk_forms;
use serde_json::json;

const CHAT: Dialect = Dialect::openai("messages", "max_tokens");

fn take(request: Value) -> Result<Option<Tools>, ApiError> {
    let mut request: OpenAiRequest<bool> = serde_json::from_value(request).unwrap();
    Tools::take(&mut request, &mk_forms(), CHAT)
}

#[track_caller]
fn assert_refused(request: Value, field: &str, words: &str) {
    let why = take(request).unwrap_err();
    assert_eq!(why.param.as_deref(), Some(field));
    assert!(why.message.contains(words), "{}", why.message);
}

fn function(name: &str) -> Value {
    json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}})
}

#[test]
fn tools_are_offered_unless_the_choice_is_none() {
    let tools = json!([function("f"), {"type": "function", "function": {"name": "g"}}]);
    let offered = take(json!({"tools": tools, "tool_choice": "auto"}))
        .unwrap()
        .unwrap();
    assert_eq!(offered.offered.len(), 2);
    assert!(offered.parallel);
    let one = take(json!({"tools": tools, "parallel_tool_calls": false})).unwrap();
    assert!(!one.unwrap().parallel);
    assert!(
        take(json!({"tools": tools, "tool_choice": "none"}))
            .unwrap()
            .is_none()
    );
    assert!(take(json!({"tools": []})).unwrap().is_none());
    assert!(take(json!({"tool_choice": "auto"})).unwrap().is_none());
}

#[test]
fn a_tool_that_is_not_whole_is_refused_by_its_place() {
    let one = |tool: Value| json!({"tools": [function("f"), tool]});
    assert_refused(one(json!({})), "tools[1].type", "give \"function\"");
    assert_refused(one(json!("f")), "tools[1].type", "give \"function\"");
    assert_refused(
        one(json!({"type": "web_search"})),
        "tools[1].type",
        "`web_search`",
    );
    let nameless = json!({"type": "function", "function": {}});
    assert_refused(one(nameless), "tools[1].function.name", "1 to 256 bytes");
    assert_refused(
        one(function("f")),
        "tools[1].function.name",
        "named `f`, too",
    );
    let parameters = json!({"type": "function", "function": {"name": "g", "parameters": [1]}});
    assert_refused(one(parameters), "tools[1].function.parameters", "an object");
}

#[test]
fn a_choice_that_cannot_be_kept_is_refused() {
    let choose = |choice: Value| json!({"tools": [function("f")], "tool_choice": choice});
    assert_refused(
        choose(json!("sometimes")),
        "tool_choice",
        "`sometimes` is no choice",
    );
    let named = choose(json!({"type": "function", "function": {"name": "g"}}));
    assert_refused(named, "tool_choice", "no function `g`");
    let without = json!({"tool_choice": "required"});
    assert_refused(without, "tool_choice", "`tools` is missing or empty");
}

#[test]
fn a_model_that_cannot_call_is_not_offered_tools() {
    let mut request: OpenAiRequest<bool> =
        serde_json::from_value(json!({"tools": [function("f")]})).unwrap();
    let why = Tools::take(&mut request, &AnswerForms::default(), CHAT).unwrap_err();
    assert_eq!(why.param.as_deref(), Some("tools"));
    assert!(why.message.contains("--chat-template"), "{}", why.message);
    assert!(
        refusal(Toolless::Form)
            .message
            .contains("--tool-call-parser")
    );
}

/// The source of the grammar that a request's tools ask for.
fn source(tools: &Value, choice: Value) -> Option<Constraint> {
    let tools = take(json!({"tools": tools, "tool_choice": choice})).unwrap();
    tools.unwrap().constraint
}

#[test]
fn a_required_call_is_a_grammar_of_the_form() {
    let tools = json!([function("f"), {"type": "function", "function": {"name": "g"}}]);
    assert_eq!(source(&tools, json!("auto")), None);
    let call = |name: &str, schema: Value| ToolCall {
        begin: format!("<tool_call>\n{{\"name\": \"{name}\", \"arguments\": "),
        behind_number: None,
        arguments: Arguments::Json(schema),
        end: "}\n</tool_call>".to_owned(),
    };
    let f = call("f", json!({"type": "object"}));
    let g = call(
        "g",
        json!({"type": "object", "additionalProperties": false}),
    );
    let calls = |tools: &[&ToolCall], around: Around| {
        Constraint::of_calls(Calls {
            tools: tools.iter().map(|&call| call.clone()).collect(),
            around,
        })
    };
    let marks = || Around::Marks {
        open: String::new(),
        between: Some("\n".to_owned()),
        close: String::new(),
    };
    let both = source(&tools, json!("required"));
    assert_eq!(both, Some(calls(&[&f, &g], marks())));
    let named = json!({"type": "function", "function": {"name": "g"}});
    assert_eq!(source(&tools, named), Some(calls(&[&g], marks())));
    let mut strict = tools.clone();
    strict[0]["function"]["strict"] = json!(true);
    let text = Around::Text {
        trigger: "<tool_call>".to_owned(),
    };
    let both = source(&strict, json!("auto"));
    assert_eq!(both, Some(calls(&[&f, &g], text)));
}

#[test]
fn arguments_are_held_as_they_are_read() {
    let parameters = json!({"properties": {"a": {"type": "string"}, "b": {"type": "integer"},
        "c": {"anyOf": [{"type": "string"}, {"type": "null"}]}}, "required": ["d"]});
    let types = ToolTypes::new([("f", &parameters)]);
    let ArgumentsFrame::Keyed(frame) = ToolForm::Glm45.frame().arguments else {
        panic!("its arguments have keys");
    };
    let keyed = keyed_arguments(frame, "f", parameters, &types);
    let texts = keyed
        .texts
        .iter()
        .map(|text| (text.name.as_str(), text.or_null));
    assert_eq!(
        texts.collect::<Vec<_>>(),
        [("a", false), ("c", true), ("d", false)]
    );
}

#[test]
fn what_a_form_cannot_hold_is_refused() {
    let f = |name: &str| Function {
        name: name.to_owned(),
        parameters: Value::Null,
        strict: true,
    };
    let types = ToolTypes::default();
    let why = required(ToolForm::Pythonic, vec![f("a-b")], &types, true).unwrap_err();
    assert_eq!(why.param.as_deref(), Some("tools"));
    assert!(why.message.contains("`a-b`"), "{}", why.message);
    for form in [ToolForm::Llama3, ToolForm::Pythonic] {
        let why = strict(form, vec![f("f")], &types, CHAT).unwrap_err();
        assert_eq!(why.param.as_deref(), Some("tools[0].function.strict"));
    }
}
