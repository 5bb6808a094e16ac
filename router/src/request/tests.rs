//! Facts about what is read of a request.

use super::*;
use proptest::prelude::*;

fn parse(api: Api, body: &str) -> Result<RoutingFields, RequestError> {
    RoutingFields::parse(api, body.as_bytes())
}

fn rooms(api: Api, body: &str) -> RoomCount {
    parse(api, body).unwrap().rooms
}

#[test]
fn each_choice_and_each_item_has_a_room() {
    use Api::{ChatCompletions, Completions, Generate, Responses};
    use RoomCount::{Many, One};
    assert_eq!(rooms(ChatCompletions, r#"{"messages":[{},{}]}"#), One);
    assert_eq!(rooms(ChatCompletions, r#"{"n":3}"#), Many(3));
    assert_eq!(rooms(Responses, r#"{"input":["a","b"],"n":3}"#), One);
    assert_eq!(rooms(Completions, r#"{"prompt":"a"}"#), One);
    assert_eq!(rooms(Completions, r#"{"prompt":["a"]}"#), Many(1));
    assert_eq!(rooms(Completions, r#"{"prompt":["a","b"],"n":2}"#), Many(4));
    assert_eq!(rooms(Completions, r#"{"prompt":[1,2,3]}"#), One);
    assert_eq!(rooms(Completions, r#"{"prompt":[[1,2],[3]]}"#), Many(2));
    assert_eq!(rooms(Generate, r#"{"text":["a","b"]}"#), Many(2));
    assert_eq!(
        rooms(Generate, r#"{"text":null,"input_ids":[[1],[2]]}"#),
        Many(2)
    );
    assert_eq!(
        rooms(Generate, r#"{"text":"a","sampling_params":{"n":4}}"#),
        Many(4)
    );
    let listed = r#"{"text":["a","b"],"sampling_params":[{"n":2},{}]}"#;
    assert_eq!(rooms(Generate, listed), Many(3));
}

#[test]
fn token_ids_are_counted_and_text_is_estimated() {
    let tokens = |api, body: &str| parse(api, body).unwrap().prompt_tokens;
    assert_eq!(tokens(Api::Completions, r#"{"prompt":[[1,2,3],[4]]}"#), 4);
    assert_eq!(tokens(Api::Generate, r#"{"input_ids":[5, 6]}"#), 2);
    let input = format!(r#"{{"input":"{}"}}"#, "x".repeat(400));
    assert_eq!(tokens(Api::Responses, &input), 101);
    let text = format!(r#"{{"prompt":"{}"}}"#, "x".repeat(400));
    assert_eq!(tokens(Api::Completions, &text), 101);
}

#[test]
fn a_field_of_the_wrong_type_is_named() {
    let error = parse(Api::ChatCompletions, r#"{"stream":"yes"}"#).unwrap_err();
    assert_eq!(error.param(), Some("stream"));
    assert_eq!(
        error.to_string(),
        "stream must be true or false, not \"yes\""
    );
    for body in [r#"{"n":0}"#, r#"{"n":-1}"#, r#"{"n":1.5}"#] {
        let error = parse(Api::Completions, body).unwrap_err();
        assert_eq!(error.param(), Some("n"), "{body}");
    }
}

#[test]
fn a_field_given_twice_is_refused() {
    let error = parse(Api::ChatCompletions, r#"{"model":"a","model":"b"}"#).unwrap_err();
    assert!(matches!(error, RequestError::Duplicate { param: "model" }));
}

#[test]
fn more_answers_than_rooms_are_refused() {
    let error = parse(Api::ChatCompletions, r#"{"n":1000000000}"#).unwrap_err();
    assert!(matches!(
        error,
        RequestError::TooMany {
            asked: 1_000_000_000
        }
    ));
}

#[test]
fn bytes_that_are_not_utf8_are_refused_with_their_position() {
    let error = RoutingFields::parse(Api::Generate, b"{\"text\":\"\xff\"}").unwrap_err();
    let RequestError::Utf8(error) = error else {
        panic!("{error}");
    };
    assert_eq!(error.valid_up_to(), 9);
}

#[test]
fn null_is_absent() {
    let routing = parse(
        Api::ChatCompletions,
        r#"{"model":null,"stream":null,"n":null}"#,
    )
    .unwrap();
    assert_eq!((routing.model, routing.stream), (None, false));
    assert_eq!(routing.rooms, RoomCount::One);
}

fn wanted(api: Api, body: &str) -> Option<AnswerShape> {
    parse(api, body).unwrap().prompt_logprobs
}

#[test]
fn a_chat_has_no_logprobs_of_its_prompt() {
    let asked = r#"{"return_logprob":true,"logprobs":true}"#;
    assert_eq!(wanted(Api::Generate, asked), Some(AnswerShape::Generate));
    assert_eq!(wanted(Api::ChatCompletions, asked), None);
    let listed = r#"{"return_logprob":[false,true]}"#;
    assert_eq!(wanted(Api::Generate, listed), Some(AnswerShape::Generate));
}

#[test]
fn a_completion_has_them_with_an_echo_only() {
    let asked = |body| wanted(Api::Completions, body);
    let shape = Some(AnswerShape::Completions);
    assert_eq!(asked(r#"{"echo":true,"logprobs":0}"#), shape);
    assert_eq!(asked(r#"{"echo":true,"logprobs":null}"#), None);
    assert_eq!(asked(r#"{"echo":true}"#), None);
    assert_eq!(asked(r#"{"echo":false,"logprobs":3}"#), None);
    assert_eq!(asked(r#"{"return_logprob":true,"logprobs":3}"#), None);
}

proptest! {
    #[test]
    fn no_bytes_make_the_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        for api in Api::ALL {
            let _ = RoutingFields::parse(api, &bytes);
        }
    }

    #[test]
    fn no_shape_of_prompt_makes_the_parser_panic(
        value in r#"[{}\[\]:,"a-c0-9 .e-]{0,30}"#,
    ) {
        for key in ["prompt", "text", "input_ids", "sampling_params", "n", "messages", "input"] {
            let body = format!("{{\"{key}\":{value}}}");
            for api in Api::ALL {
                let _ = RoutingFields::parse(api, body.as_bytes());
            }
        }
    }
}
