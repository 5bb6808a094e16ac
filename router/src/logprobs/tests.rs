//! Facts about the merge of prompt log probabilities.

use super::*;
use proptest::prelude::*;

const PREFILL: &str =
    r#"{"text":"x","meta_info":{"input_token_logprobs":[[null,1,null],[-0.10,2,null]],"id":"a"}}"#;

const ECHOED: &str = r#"{"choices":[
    {"text":"a b","index":0,"logprobs":{"tokens":["a"," b"],"token_logprobs":[null,-0.10],"top_logprobs":[null,{"b":-0.1}],"text_offset":[0,1]}},
    {"text":"c","index":1,"logprobs":{"tokens":["c"],"token_logprobs":[null],"top_logprobs":[null],"text_offset":[0]}}]}"#;

fn merged(prefill: &str, decode: &str) -> String {
    merged_as(AnswerShape::Generate, prefill, decode)
}

fn merged_as(shape: AnswerShape, prefill: &str, decode: &str) -> String {
    let mut prompt = PromptLogprobs::read(shape, prefill.as_bytes());
    let out = prompt.merge(&Bytes::copy_from_slice(decode.as_bytes()));
    String::from_utf8(out.to_vec()).unwrap()
}

#[test]
fn the_prompts_lists_come_first_with_all_their_digits() {
    let decode = r#"{"meta_info":{"input_token_logprobs":[[-0.50,3,null]],"n":1.0}}"#;
    assert_eq!(
        merged(PREFILL, decode),
        r#"{"meta_info":{"input_token_logprobs":[[null,1,null],[-0.10,2,null],[-0.50,3,null]],"n":1.0}}"#
    );
}

#[test]
fn a_list_that_decode_left_empty_or_out_is_filled() {
    let full = r#""input_token_logprobs":[[null,1,null],[-0.10,2,null]]"#;
    for empty in ["[]", "null", "[ ]"] {
        let decode = format!(r#"{{"meta_info":{{"input_token_logprobs":{empty}}}}}"#);
        assert_eq!(
            merged(PREFILL, &decode),
            format!(r#"{{"meta_info":{{{full}}}}}"#)
        );
    }
    assert_eq!(
        merged(PREFILL, r#"{"meta_info":{}}"#),
        format!(r#"{{"meta_info":{{{full}}}}}"#)
    );
    assert_eq!(
        merged(PREFILL, r#"{"meta_info":{"id":1}}"#),
        format!(r#"{{"meta_info":{{"id":1,{full}}}}}"#)
    );
}

#[test]
fn each_item_of_a_batch_gets_its_own() {
    let list = |numbers: [u32; 2]| {
        let items = numbers.map(|n| format!(r#"{{"meta_info":{{"input_token_logprobs":[{n}]}}}}"#));
        format!("[{}]", items.join(","))
    };
    let decode =
        r#"[{"meta_info":{"input_token_logprobs":[]}},{"meta_info":{"input_token_logprobs":[]}}]"#;
    assert_eq!(merged(&list([1, 2]), decode), list([1, 2]));
}

#[test]
fn events_that_arrive_together_are_merged_one_by_one() {
    let prefill = "data: {\"index\":1,\"meta_info\":{\"input_top_logprobs\":[7]}}\n\n\
                   data: {\"meta_info\":{\"input_top_logprobs\":[5]}}\n\ndata: [DONE]\n\n";
    let prompt = PromptLogprobs::read(AnswerShape::Generate, prefill.as_bytes());
    let mut merger = EventMerger::new(prompt);
    let event = |index, list: &str| {
        format!("data: {{\"index\":{index},\"meta_info\":{{\"input_top_logprobs\":[{list}]}}}}\n\n")
    };
    let stream = event(0, "") + &event(1, "") + "data: [DONE]\n\n";
    let (early, late) = stream.split_at(40);
    let mut out = merger.push(early.as_bytes()).to_vec();
    out.extend_from_slice(&merger.push(late.as_bytes()));
    let expected = event(0, "5") + &event(1, "7") + "data: [DONE]\n\n";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
    assert!(merger.rest().is_empty());
}

#[test]
fn the_first_token_has_the_named_tokens_of_prefill() {
    let answer = |list: &str| format!(r#"{{"meta_info":{{"output_token_ids_logprobs":{list}}}}}"#);
    let prefill = answer("[[[-0.10,7,null]]]");
    for (decode, whole) in [
        ("[null]", "[[[-0.10,7,null]]]"),
        (
            "[null,[[-0.50,7,null]]]",
            "[[[-0.10,7,null]],[[-0.50,7,null]]]",
        ),
        ("[null , null]", "[[[-0.10,7,null]],null]"),
        ("[[[-0.50,7,null]]]", "[[[-0.50,7,null]]]"),
        ("[]", "[]"),
    ] {
        assert_eq!(merged(&prefill, &answer(decode)), answer(whole));
    }
    for decode in [answer("[null]"), r#"{"meta_info":{"id":1}}"#.to_owned()] {
        assert_eq!(merged(&answer("[]"), &decode), decode);
    }
    let without = r#"{"meta_info":{"id":1}}"#;
    assert_eq!(merged(&prefill, without), without);
}

/// A choice of a completion with one token in each of its lists.
fn choice(index: u64, lists: [&str; 4]) -> String {
    let [tokens, logprobs, tops, offsets] = lists;
    format!(
        r#"{{"index":{index},"text":"t","logprobs":{{"tokens":[{tokens}],"token_logprobs":[{logprobs}],"top_logprobs":[{tops}],"text_offset":[{offsets}]}}}}"#
    )
}

const ANSWERED: [&str; 4] = [r#"" d""#, "-0.50", r#"{"d":-1e-3}"#, "3"];
const BOTH: [&str; 4] = [
    r#""a"," b"," d""#,
    "null,-0.10,-0.50",
    r#"null,{"b":-0.1},{"d":-1e-3}"#,
    "0,1,3",
];

#[test]
fn a_completions_lists_begin_with_the_prompts() {
    let decode = |lists| {
        format!(
            r#"{{"choices":[{}],"usage":{{"n":1.0}}}}"#,
            choice(0, lists)
        )
    };
    assert_eq!(
        merged_as(AnswerShape::Completions, ECHOED, &decode(ANSWERED)),
        decode(BOTH)
    );
}

#[test]
fn each_choice_gets_the_lists_of_its_index() {
    let second = choice(1, [r#""c""#, "null", "null", "0"]);
    let decode = |choices: [&str; 2]| format!(r#"{{"choices":[{}]}}"#, choices.join(","));
    let merged = merged_as(
        AnswerShape::Completions,
        ECHOED,
        &decode([&choice(1, [""; 4]), &choice(0, ANSWERED)]),
    );
    assert_eq!(merged, decode([&second, &choice(0, BOTH)]));
}

#[test]
fn a_completion_without_lists_gets_the_prompts() {
    let decode = r#"{"choices":[{"index":1,"logprobs":null}]}"#;
    assert_eq!(
        merged_as(AnswerShape::Completions, ECHOED, decode),
        r#"{"choices":[{"index":1,"logprobs":{"tokens":["c"],"token_logprobs":[null],"top_logprobs":[null],"text_offset":[0]}}]}"#
    );
}

#[test]
fn only_the_first_event_of_a_choice_has_the_prompts() {
    let event = |choice: &str| format!("data: {{\"choices\":[{choice}]}}\n\n");
    let (first, later) = (event(&choice(0, ANSWERED)), event(&choice(0, ANSWERED)));
    let null = event(r#"{"index":1,"logprobs":null}"#);
    let usage = event("");
    let prompt = PromptLogprobs::read(AnswerShape::Completions, ECHOED.as_bytes());
    let mut merger = EventMerger::new(prompt);
    let out = merger.push(format!("{first}{later}{null}{null}{usage}data: [DONE]\n\n").as_bytes());
    let merged = event(&format!(
        r#"{{"index":1,"logprobs":{{{}}}}}"#,
        r#""tokens":["c"],"token_logprobs":[null],"top_logprobs":[null],"text_offset":[0]"#
    ));
    let begun = event(&choice(0, BOTH));
    assert_eq!(
        String::from_utf8(out.to_vec()).unwrap(),
        format!("{begun}{later}{merged}{null}{usage}data: [DONE]\n\n")
    );
}

#[test]
fn what_is_no_answer_stays_as_it_is() {
    for decode in [
        "",
        "nonsense",
        "{\"error\":{}}",
        "[1,2]",
        "{\"meta_info\":3}",
    ] {
        assert_eq!(merged(PREFILL, decode), decode);
    }
    for decode in [
        "[]",
        r#"{"choices":3}"#,
        r#"{"choices":[3,null]}"#,
        r#"{"choices":[{"index":7,"logprobs":null}]}"#,
        r#"{"choices":[{"index":0,"logprobs":[]},{"index":1}]}"#,
    ] {
        assert_eq!(merged_as(AnswerShape::Completions, ECHOED, decode), decode);
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_merge_panic(
        prefill in r#"[{}\[\]:,"a1 ]{0,20}"#,
        decode in r#"[{}\[\]:,"a1 ]{0,20}"#,
    ) {
        let wrap = |inner: &str| format!(r#"{{"meta_info":{{"input_token_logprobs":{inner}}}}}"#);
        merged(&wrap(&prefill), &wrap(&decode));
        merged(&prefill, &decode);
        let choices = |inner: &str| format!(r#"{{"choices":[{{"logprobs":{{"tokens":{inner}}}}}]}}"#);
        merged_as(AnswerShape::Completions, &choices(&prefill), &choices(&decode));
        merged_as(AnswerShape::Completions, ECHOED, &decode);
    }
}
