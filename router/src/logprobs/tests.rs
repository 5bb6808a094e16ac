//! Facts about the merge of prompt log probabilities.

use super::*;
use proptest::prelude::*;

const PREFILL: &str =
    r#"{"text":"x","meta_info":{"input_token_logprobs":[[null,1,null],[-0.10,2,null]],"id":"a"}}"#;

fn merged(prefill: &str, decode: &str) -> String {
    let prompt = PromptLogprobs::read(prefill.as_bytes());
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
    let mut merger = EventMerger::new(PromptLogprobs::read(prefill.as_bytes()));
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
    }
}
