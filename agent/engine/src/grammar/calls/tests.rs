//! Which texts are calls.

use super::*;
use crate::grammar::tests::{assert_bounded, compile, has_text, has_tokens, mk_grammars, tokens};
use crate::grammar::{Grammar, GrammarError, GrammarSource};
use serde_json::json;

fn tool(name: &str) -> ToolCall {
    ToolCall {
        begin: format!("<c>{name} "),
        behind_number: None,
        arguments: Arguments::Json(
            json!({"type": "object", "properties": {"n": {"type": "integer"}},
            "required": ["n"], "additionalProperties": false}),
        ),
        end: "</c>".to_owned(),
    }
}

fn marks(between: Option<&str>) -> Around {
    Around::Marks {
        open: "calls:".to_owned(),
        between: between.map(str::to_owned),
        close: ".".to_owned(),
    }
}

pub(super) fn compiled(tools: Vec<ToolCall>, around: Around) -> Result<Grammar, GrammarError> {
    let calls = Calls { tools, around };
    compile(&mk_grammars(), GrammarSource::Calls(calls))
}

fn of_two(between: Option<&str>) -> Grammar {
    compiled(vec![tool("f"), tool("from")], marks(between)).expect("a grammar")
}

const ONE: &str = r#"calls:<c>f {"n": 1}</c>."#;
const TWO: &str = r#"calls:<c>f {"n": 1}</c>, <c>from {"n": 22}</c>."#;

#[test]
fn an_answer_is_calls_and_nothing_else() {
    let many = of_two(Some(", "));
    for text in [ONE, TWO] {
        assert!(has_tokens(&many, &tokens(text)), "{text}");
    }
    let [more, other, wrong, open, none] = [
        &format!("{ONE} So"),
        r#"calls:<c>g {"n": 1}</c>."#,
        r#"calls:<c>f {"n": "x"}</c>."#,
        ONE.trim_end_matches('.'),
        "calls:.",
    ];
    for text in [more, other, wrong, open, none, "So", ""] {
        assert!(!has_tokens(&many, &tokens(text)), "{text}");
    }
    let single = of_two(None);
    assert!(has_tokens(&single, &tokens(ONE)));
    assert!(!has_tokens(&single, &tokens(TWO)));
}

#[test]
fn text_has_calls_wherever_a_trigger_is() {
    let around = || Around::Text {
        trigger: "<c>".to_owned(),
    };
    let grammar = compiled(vec![tool("f"), tool("from")], around()).expect("a grammar");
    for text in [
        "",
        "So.",
        r#"So <c>f {"n": 1}</c> and <c>from {"n": 2}</c>"#,
    ] {
        assert!(has_text(&grammar, text), "{text}");
    }
    for text in ["So <c>", "<c>g", r#"<c>f {"n": "x"}</c>"#] {
        assert!(!has_text(&grammar, text), "{text}");
    }
    let mut other = tool("f");
    other.begin = "[f".to_owned();
    let refused = compiled(vec![other], around()).expect_err("it begins otherwise");
    assert!(refused.to_string().contains("[f has no <c>"), "{refused}");
}

#[test]
fn one_of_some_messages_may_be_a_call() {
    let messages = |between: &str| Around::Messages {
        begins: vec!["say:".to_owned(), "think:".to_owned()],
        between: between.to_owned(),
    };
    // Token 1 is special.
    let grammar = compiled(vec![tool("f")], messages("<|im_start|>as ")).expect("a grammar");
    let of = |texts: &[&str]| {
        let texts = texts.iter().map(|text| tokens(text));
        texts.collect::<Vec<_>>().join(&1)
    };
    let call = r#"as <c>f {"n": 1}</c>"#;
    for texts in [
        &["say:So <c>f."][..],
        &["think:So", "as think:", "as say:So"],
        &["think:So", call],
        &[&call[3..]],
    ] {
        assert!(has_tokens(&grammar, &of(texts)), "{texts:?}");
    }
    for texts in [
        &["So"][..],
        &["think:So", "say:So"],
        &["think:So", call, "as say:So"],
        &[""],
    ] {
        assert!(!has_tokens(&grammar, &of(texts)), "{texts:?}");
    }
    let refused = compiled(vec![tool("f")], messages("as ")).expect_err("it is text");
    assert!(
        refused.to_string().contains("no token of this model"),
        "{refused}"
    );
}

#[test]
fn calls_may_have_numbers() {
    let mut f = tool("f");
    f.begin = "f:".to_owned();
    f.behind_number = Some("!".to_owned());
    let grammar = compiled(vec![f], marks(Some(";"))).expect("a grammar");
    assert!(has_text(
        &grammar,
        r#"calls:f:0!{"n": 1}</c>;f:11!{"n": 1}</c>."#
    ));
    assert!(!has_text(&grammar, r#"calls:f:!{"n": 1}</c>."#));
}

#[test]
fn a_schema_that_is_not_enforced_is_refused_by_its_tool() {
    let mut f = tool("f");
    f.arguments = Arguments::Json(json!({"type": "array", "uniqueItems": true}));
    let refused = compiled(vec![tool("g"), f], marks(None)).expect_err("it cannot be");
    let message = refused.to_string();
    assert!(
        message.contains("<c>f") && message.contains("uniqueItems"),
        "{message}"
    );
}

#[test]
fn hostile_schemas_end_soon() {
    let grammars = mk_grammars();
    let of = |a: Value| json!({"type": "object", "properties": {"a": a}, "required": ["a"]});
    let text = |pattern: &str| of(json!({"type": "string", "pattern": pattern}));
    let many = |count: usize| -> serde_json::Map<String, Value> {
        (0..count)
            .map(|i| (format!("p{i}"), json!({"type": "string", "maxLength": 9})))
            .collect()
    };
    let words: Vec<_> = (0..60_000).map(|i| format!("w{i}")).collect();
    let listed = |inner: Value| json!({"type": "array", "items": inner, "minItems": 4000});
    let nested = listed(listed(listed(json!({"type": "null"}))));
    for (what, schema) in [
        ("ways", text("(a|b)*a(a|b){60}$")),
        (
            "repeats",
            text("((((a{1,100}){1,100}){1,100}){1,100}){1,100}"),
        ),
        ("classes", text(&"\\pL".repeat(5000))),
        (
            "characters",
            of(json!({"type": "string", "maxLength": 4_000_000_000_u64})),
        ),
        (
            "more characters",
            of(json!({"type": "string", "minLength": u64::MAX})),
        ),
        ("words", of(json!({"enum": words}))),
        ("properties", json!({"properties": many(2000)})),
        ("lists", of(nested)),
    ] {
        let text = |name: &String| TextParameter {
            name: name.clone(),
            or_null: false,
        };
        let properties = schema["properties"].as_object().expect("an object");
        let keyed = KeyedArguments {
            before_key: "<k>".to_owned(),
            before_value: "</k>".to_owned(),
            end: "</v>".to_owned(),
            has_free_breaks: false,
            texts: properties.keys().map(text).collect(),
            schema: schema.clone(),
        };
        for arguments in [Arguments::Keyed(keyed), Arguments::Python(schema)] {
            let tools = vec![ToolCall {
                arguments,
                ..tool("f")
            }];
            let around = marks(None);
            assert_bounded(
                &grammars,
                what,
                GrammarSource::Calls(Calls { tools, around }),
            );
        }
    }
}
