//! Items as the messages that a chat template reads, and those that are refused by their place.

use super::*;

fn read(input: Value) -> Result<Value, ApiError> {
    let input = serde_json::from_value(input).unwrap();
    let messages = into_template_messages(Some("Be brief."), Some(input))?;
    Ok(serde_json::to_value(&messages[1..]).unwrap())
}

#[track_caller]
fn assert_refused(items: Value, param: &str, words: &str) {
    let why = read(items).unwrap_err();
    assert_eq!(
        (why.status.as_u16(), why.param.as_deref()),
        (400, Some(param))
    );
    assert!(why.message.contains(words), "{}", why.message);
}

#[test]
fn a_text_is_a_users_message_behind_the_instructions() {
    let input = Some(Input::Text("Hi".to_owned()));
    let messages = into_template_messages(Some("Be brief."), input).unwrap();
    let expected = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
    ]);
    assert_eq!(serde_json::to_value(messages).unwrap(), expected);
}

#[test]
fn what_an_assistant_thought_said_and_called_is_one_message() {
    let thought = json!({
        "type": "reasoning", "id": "rs_0", "summary": [], "status": "completed",
        "content": [{"type": "reasoning_text", "text": "Hm."}], "encrypted_content": null,
    });
    let said = json!({
        "type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
        "content": [{"type": "output_text", "text": "So.", "annotations": [], "logprobs": []}],
    });
    let call = |id: &str| {
        json!({
            "type": "function_call", "id": "fc_2", "status": "completed", "call_id": id,
            "name": "tide", "arguments": "{\"harbour\":\"Cork\"}",
        })
    };
    let output = |id: &str| json!({"type": "function_call_output", "call_id": id, "output": id});
    let named = json!({"type": "function_call_output", "call_id": "b", "name": "tide", "output": [{"type": "input_text", "text": "b"}]});
    let user = json!({"role": "user", "content": "When?"});
    let items = [
        user,
        thought,
        said,
        call("a"),
        call("b"),
        output("a"),
        named,
        call("c"),
    ];
    let function = json!({"name": "tide", "arguments": {"harbour": "Cork"}});
    let called = |id: &str| json!({"id": id, "type": "function", "function": function});
    let expected = json!([
        {"role": "user", "content": "When?"},
        {
            "role": "assistant", "content": "So.", "reasoning_content": "Hm.", "thinking": "Hm.",
            "tool_calls": [called("a"), called("b")],
        },
        {"role": "tool", "content": "a", "tool_call_id": "a"},
        {"role": "tool", "content": "b", "tool_call_id": "b", "name": "tide"},
        {"role": "assistant", "content": "", "tool_calls": [called("c")]},
    ]);
    assert_eq!(read(json!(items)).unwrap(), expected);
}

#[test]
fn what_follows_an_answer_begins_another() {
    let said = |text: &str| json!({"role": "assistant", "content": text});
    let thought =
        json!({"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hm."}]});
    let unread = json!({"type": "reasoning", "summary": [{"type": "summary_text", "text": "S"}]});
    let items = json!([said("a"), said("b"), unread, thought, said("c")]);
    let expected = json!([
        {"role": "assistant", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "assistant", "content": "c", "reasoning_content": "Hm.", "thinking": "Hm."},
    ]);
    assert_eq!(read(items).unwrap(), expected);
}

#[test]
fn items_that_are_not_whole_are_refused_by_their_place() {
    let one = |item: Value| json!([{"role": "user", "content": "a"}, item]);
    assert_refused(json!([]), "input", "at least one item");
    assert_refused(one(json!("a")), "input[1]", "an item is an object");
    assert_refused(one(json!({"content": "a"})), "input[1].role", "missing");
    assert_refused(
        one(json!({"role": "king"})),
        "input[1].role",
        "not a message role",
    );
    assert_refused(
        one(json!({"role": "user", "content": 5})),
        "input[1].content",
        "a string",
    );
    assert_refused(
        one(json!({"role": "user", "contents": "a"})),
        "input[1].contents",
        "no such field",
    );
    let called = json!({"type": "function_call", "call_id": "a", "name": "f", "arguments": {}});
    assert_refused(one(called), "input[1].arguments", "expected a string");
    let output = json!({"type": "function_call_output", "call_id": "a"});
    assert_refused(one(output), "input[1].output", "a list of parts");
    let part = |part: Value| one(json!({"role": "user", "content": [part]}));
    assert_refused(part(json!({})), "input[1].content[0].type", "missing");
    let untexted = json!({"type": "input_text"});
    assert_refused(part(untexted), "input[1].content[0].text", "missing");
}

#[test]
fn what_is_not_served_is_refused_in_words() {
    let image = json!([{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]);
    assert_refused(image, "input[0].content[0].type", "reads text only");
    let reference = json!([{"type": "item_reference", "id": "msg_1"}]);
    assert_refused(reference, "input[0].type", "send the item");
    let hosted = json!([{"type": "web_search_call", "id": "ws_1"}]);
    assert_refused(
        hosted,
        "input[0].type",
        "`web_search_call` are not supported",
    );
    let encrypted = json!([{"type": "reasoning", "encrypted_content": "x"}]);
    assert_refused(encrypted, "input[0].encrypted_content", "cannot be read");
}
