//! Which texts a grammar has, by the masks that it gives.

use crate::grammar::GrammarSource;
use crate::grammar::tests::{compile, has_text, mk_grammars};

/// As llama.cpp's `grammars/json.gbnf`.
const JSON: &str = r#"
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws  # a comment
string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
"#;

fn assert_texts(grammar: &str, texts: &[&str], others: &[&str]) {
    let source = GrammarSource::Ebnf(grammar.to_owned());
    let compiled = compile(&mk_grammars(), source).unwrap_or_else(|e| panic!("{grammar}: {e}"));
    for text in texts {
        assert!(has_text(&compiled, text), "{text:?} is of {grammar}");
    }
    for text in others {
        assert!(!has_text(&compiled, text), "{text:?} is not of {grammar}");
    }
}

#[test]
fn a_text_is_of_a_grammar_by_its_characters_and_not_by_lexemes() {
    assert_texts(
        r#"root ::= [a-z]+ "x""#,
        &["ax", "xx", "xxxx"],
        &["x", "ab", "axb"],
    );
    let crossing = r#"root ::= ("ab" "cx") | ("abc" "y") | rest
        rest ::= "abd" rest?"#;
    assert_texts(
        crossing,
        &["abcx", "abcy", "abdabd"],
        &["abc", "abx", "abdabc"],
    );
    let crossing = r#"root ::= "(" root ")" | [a-z]* "end" | "a" "bc" | "ab" "d""#;
    let texts = ["((end))", "(endend)", "(abc)", "abd", "abend"];
    assert_texts(crossing, &texts, &["(end", "abce", "ab", "(abdd)"]);
}

#[test]
fn json_is_what_its_grammar_says() {
    let texts = [
        "{}",
        r#"{"a": [1, -2.5e3, {"b": null}], "c": "é\n\u00e9"}"#,
        "{\"a\":\n    true}",
    ];
    assert_texts(
        JSON,
        &texts,
        &["[]", "{", "{\"a\"}", "{\"a\": 01}", "{\"a\": \"\n\"}"],
    );
}

#[test]
fn repetitions_classes_and_empty_options() {
    let grammar = r#"root ::= "a"{2,3} ("b" | "") .{,2} [^0-9\]-]{2} u-1
        u-1 ::= "\u00e9" | [-+α-ω]?"#;
    let texts = ["aa]0xx", "aaab..yy+", "aaxxé", "aaxxλ"];
    assert_texts(grammar, &texts, &["ab", "aa0]", "aaaa000x-"]);
    assert_texts("root ::= x{0} \"y\"\nx ::= \"z\" x", &["y"], &["zy"]);
}

#[test]
fn mistakes_are_named_by_their_lines() {
    let many = format!("root ::= {}\"a\"{}", "(".repeat(65), ")".repeat(65));
    for (grammar, problem) in [
        ("a ::= \"b\"", "no rule root"),
        ("root ::= b", "the rule b, which root uses, is not given"),
        (
            "root ::= \"a\"\nroot ::= \"b\"",
            "the rule root is given twice",
        ),
        ("root ::= \"a\"\n  | \"b", "line 2: \" is missing"),
        ("root ::= (\"a\"", "line 1: ) is missing"),
        ("root ::= \"a\" )", "line 1: ')' is not expected here"),
        ("root ::= * \"a\"", "'*' is not expected here"),
        ("root ::= \"a\"**", "'*' is not expected here"),
        ("root ::= [z-a]", "the range 'z' to 'a' is empty"),
        ("root ::= \"\\q\"", "\\q is unknown"),
        ("root ::= \"\\xZZ\"", "\\x needs 2 hexadecimal digits"),
        ("root ::= \"a\"{3,2}", "a repetition ends before it begins"),
        ("root ::= \"a\"{9999999}", "repeat at most"),
        ("root = \"a\"", "::= is missing after root"),
        (&many, "groups lie more than 64 deep"),
        ("root ::= root \"a\"", "no token of this model continues it"),
    ] {
        let source = GrammarSource::Ebnf(grammar.to_owned());
        let error = compile(&mk_grammars(), source).expect_err("it is refused");
        assert!(error.to_string().contains(problem), "{grammar}: {error}");
    }
}
