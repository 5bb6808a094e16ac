//! Which texts are calls.

use super::*;
use crate::grammar::tests::{compile, has_tokens, mk_grammars, tokens};
use crate::grammar::{Grammar, GrammarError, GrammarSource};
use serde_json::json;

fn tool(name: &str) -> Tag {
    Tag {
        begin: format!("<c>{name} "),
        schema: json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
            "additionalProperties": false}),
        end: "</c>".to_owned(),
    }
}

fn compiled(between: Option<&str>) -> Result<Grammar, GrammarError> {
    let calls = Calls {
        open: "calls:".to_owned(),
        tools: vec![tool("f"), tool("from")],
        between: between.map(str::to_owned),
        close: ".".to_owned(),
    };
    compile(&mk_grammars(), GrammarSource::Calls(calls))
}

const ONE: &str = r#"calls:<c>f {"n": 1}</c>."#;
const TWO: &str = r#"calls:<c>f {"n": 1}</c>, <c>from {"n": 22}</c>."#;

#[test]
fn an_answer_is_calls_and_nothing_else() {
    let many = compiled(Some(", ")).expect("a grammar");
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
    let single = compiled(None).expect("a grammar");
    assert!(has_tokens(&single, &tokens(ONE)));
    assert!(!has_tokens(&single, &tokens(TWO)));
}

#[test]
fn a_schema_that_is_not_enforced_is_refused_by_its_tool() {
    let mut f = tool("f");
    f.schema = json!({"type": "array", "uniqueItems": true});
    let calls = Calls {
        open: String::new(),
        tools: vec![tool("g"), f],
        between: None,
        close: String::new(),
    };
    let refused = compile(&mk_grammars(), GrammarSource::Calls(calls)).expect_err("it cannot be");
    let message = refused.to_string();
    assert!(
        message.contains("<c>f") && message.contains("uniqueItems"),
        "{message}"
    );
}
