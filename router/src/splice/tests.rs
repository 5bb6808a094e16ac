//! Facts about splicing.

use super::*;
use proptest::prelude::*;
use serde_json::value::RawValue;

fn room(room: u64) -> BootstrapRoom {
    BootstrapRoom::new(room).unwrap()
}

fn spliced(body: &str, array_len: Option<u32>) -> String {
    let points = scan_object(body, |_, _| Ok(())).unwrap();
    let bootstrap = Bootstrap {
        host_json: "\"p\"",
        port: 8998,
        room: room(7),
        array_len,
    };
    let out = points.splice(body.as_bytes(), &bootstrap);
    String::from_utf8(out.to_vec()).unwrap()
}

#[test]
fn fields_are_added_before_the_closing_brace() {
    assert_eq!(
        spliced("{\"a\" : 1.10 }\n", None),
        "{\"a\" : 1.10 ,\"bootstrap_host\":\"p\",\"bootstrap_port\":8998,\"bootstrap_room\":7}\n"
    );
    assert_eq!(
        spliced("{}", None),
        r#"{"bootstrap_host":"p","bootstrap_port":8998,"bootstrap_room":7}"#
    );
}

#[test]
fn members_are_overwritten_where_they_stand_or_added() {
    let body = r#"{"stream" : true ,"x":{"n":3},"n":2}"#;
    let points = scan_object(body, |_, _| Ok(())).unwrap();
    let members = [
        (Field::N, "1"),
        (Field::MaxTokens, "1"),
        (Field::Stream, "false"),
    ];
    assert_eq!(
        points.overwrite(body.as_bytes(), &members),
        r#"{"stream" : false ,"x":{"n":3},"n":1,"max_tokens":1}"#
    );
    let points = scan_object("{}", |_, _| Ok(())).unwrap();
    assert_eq!(points.overwrite(b"{}", &[(Field::N, "1")]), r#"{"n":1}"#);
}

#[test]
fn a_batch_has_one_room_for_each_answer() {
    assert_eq!(
        spliced("{\"n\":2}", Some(2)),
        r#"{"n":2,"bootstrap_host":["p","p"],"bootstrap_port":[8998,8998],"bootstrap_room":[7,8]}"#
    );
}

#[test]
fn what_the_client_sent_for_them_is_overwritten() {
    let body = r#"{"bootstrap_room":[1,2],"x":{"bootstrap_room":3},"bootstrap\u005fhost":null}"#;
    assert_eq!(
        spliced(body, None),
        r#"{"bootstrap_room":7,"x":{"bootstrap_room":3},"bootstrap\u005fhost":"p","bootstrap_port":8998}"#
    );
}

#[test]
fn the_same_field_twice_is_refused() {
    let body = r#"{"bootstrap_room":1,"bootstrap\u005froom":2}"#;
    let refused = scan_object(body, |_, _| Ok(()));
    assert!(matches!(
        refused,
        Err(SpliceError::Duplicate("bootstrap_room"))
    ));
}

#[test]
fn what_is_no_object_is_refused_with_its_position() {
    for body in [
        "",
        "[]",
        "{\"a\":}",
        "{\"a\":1",
        "{} x",
        "{\"a\":1,}",
        "nul",
    ] {
        let Err(SpliceError::Json(error)) = scan_object(body, |_, _| Ok(())) else {
            panic!("{body:?} was taken");
        };
        let reason = error.to_string();
        assert!(reason.contains("line 1 column"), "{reason}");
    }
}

/// JSON text with odd numbers, escapes and spaces, as clients write it.
fn json_text() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("1.0000000000000000001".to_owned()),
        Just("-0.0e-0".to_owned()),
        any::<i64>().prop_map(|n| n.to_string()),
        "[ -~é✓]{0,12}".prop_map(|s| serde_json::Value::from(s).to_string()),
        Just(r#""\ud83d\ude00\u0041""#.to_owned()),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4)
                .prop_map(|v| format!("[ {} ]", v.join(" , "))),
            prop::collection::vec(("[a-z_]{1,6}", inner), 0..4).prop_map(object_text),
        ]
    })
}

fn object_text(members: Vec<(String, String)>) -> String {
    let members: Vec<_> = members
        .iter()
        .map(|(key, value)| format!("\"{key}\" :{value}"))
        .collect();
    format!("{{{}}}", members.join(",\n"))
}

fn members(text: &str) -> Vec<(String, String)> {
    let mut members = Vec::new();
    scan_object(text, |key, value: &RawValue| {
        members.push((key.to_owned(), value.get().to_owned()));
        Ok(())
    })
    .unwrap();
    members
}

proptest! {
    #[test]
    fn every_other_member_stays_as_it_came(
        mut body in prop::collection::vec(("[a-z_]{1,6}", json_text()), 0..6),
        given in prop::collection::vec((0usize..3, json_text(), 0usize..7), 0..3),
        array_len in prop::option::of(1u32..5),
    ) {
        for (field, value, at) in given {
            let key = BOOTSTRAP[field].name().to_owned();
            if body.iter().all(|(other, _)| *other != key) {
                body.insert(at.min(body.len()), (key, value));
            }
        }
        let before = object_text(body);
        let after = spliced(&before, array_len);
        prop_assert_eq!(members(&before), members(&after));
        let parsed: serde_json::Value = serde_json::from_str(&after).unwrap();
        let expected = match array_len {
            None => serde_json::json!(7),
            Some(len) => (7..7 + u64::from(len)).collect(),
        };
        prop_assert_eq!(&parsed["bootstrap_room"], &expected);
    }

    #[test]
    fn no_bytes_make_the_scan_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        if let Ok(text) = std::str::from_utf8(&bytes) {
            let _ = scan_object(text, |_, _| Ok(()));
        }
    }

    #[test]
    fn no_json_like_text_makes_the_scan_panic(text in r#"[{}\[\]:,"\\a-c0-9u \n]{0,40}"#) {
        if let Ok(points) = scan_object(&text, |_, _| Ok(())) {
            let bootstrap = Bootstrap { host_json: "\"p\"", port: 1, room: room(7), array_len: None };
            let out = points.splice(text.as_bytes(), &bootstrap);
            prop_assert!(serde_json::from_slice::<serde_json::Value>(&out).is_ok());
        }
    }
}
