//! One constraint out of the fields of three APIs.

use super::*;
use crate::http::openai::OpenAiRequest;
use serde_json::json;

fn constraint(body: Value) -> Result<Option<Constraint>, ApiError> {
    let mut request: OpenAiRequest<bool> = serde_json::from_value(body).unwrap();
    request.take_constraint()
}

#[track_caller]
fn assert_source(body: Value, field: &str, source: GrammarSource) {
    let given = constraint(body).unwrap().unwrap();
    assert_eq!((given.field, given.source), (field, source));
}

#[test]
fn every_field_is_a_grammar() {
    use GrammarSource as Source;
    let schema = json!({"type": "object", "properties": {"z": {}, "a": {}}});
    let text = schema.to_string();
    let json_schema = || Source::JsonSchema(text.clone());
    let named = json!({"name": "n", "strict": true, "schema": schema});
    let format = |format: Value| json!({"response_format": format});
    assert_source(
        format(json!({"type": "json_schema", "json_schema": named})),
        "response_format",
        json_schema(),
    );
    let object = format(json!({"type": "json_object"}));
    assert_source(object, "response_format", Source::JsonObject);
    assert!(
        constraint(format(json!({"type": "text"})))
            .unwrap()
            .is_none()
    );
    assert_source(json!({"json_schema": text}), "json_schema", json_schema());
    assert_source(json!({"guided_json": schema}), "guided_json", json_schema());
    let regex = || Source::Regex("a+".to_owned());
    assert_source(json!({"regex": "a+"}), "regex", regex());
    assert_source(json!({"guided_regex": "a+"}), "guided_regex", regex());
    let ebnf = || Source::Ebnf("root ::= \"a\"".to_owned());
    assert_source(json!({"ebnf": "root ::= \"a\""}), "ebnf", ebnf());
    assert_source(
        json!({"guided_grammar": "root ::= \"a\""}),
        "guided_grammar",
        ebnf(),
    );
    let choice = || Source::Choice(vec!["a".to_owned(), "b".to_owned()]);
    assert_source(
        json!({"guided_choice": ["a", "b"]}),
        "guided_choice",
        choice(),
    );
    let outputs = |outputs: Value| json!({"structured_outputs": outputs});
    assert_source(
        outputs(json!({"choice": ["a", "b"]})),
        "structured_outputs",
        choice(),
    );
    assert_source(
        outputs(json!({"json": schema})),
        "structured_outputs",
        json_schema(),
    );
    let tag = json!({
        "structures": [{"begin": "<f>", "schema": {"type": "object"}, "end": "</f>"}],
        "triggers": ["<f>"],
    });
    let source = || Source::StructuralTag(serde_json::from_value(tag.clone()).unwrap());
    assert_source(
        json!({"structural_tag": tag.to_string()}),
        "structural_tag",
        source(),
    );
    let mut typed = tag.clone();
    typed["type"] = json!("structural_tag");
    assert_source(format(typed), "response_format", source());
}

#[test]
fn two_constraints_and_none_where_one_is_said_are_refused() {
    let refused = |body: Value| constraint(body).unwrap_err();
    let both = refused(json!({"regex": "a", "guided_choice": ["b"]}));
    assert_eq!(both.param.as_deref(), Some("guided_choice"));
    assert!(
        both.message.contains("`regex` and `guided_choice`"),
        "{}",
        both.message
    );
    let within = refused(json!({"structured_outputs": {"regex": "a", "json_object": true}}));
    assert_eq!(
        within.param.as_deref(),
        Some("structured_outputs.json_object")
    );
    let bare =
        refused(json!({"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}}));
    assert_eq!(
        bare.param.as_deref(),
        Some("response_format.json_schema.schema")
    );
    let other = refused(json!({"structural_tag": {"format": {}}}));
    assert!(other.message.contains("`structures`"), "{}", other.message);
}
