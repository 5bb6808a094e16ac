//! Facts about events.

use super::*;
use proptest::prelude::*;

fn events(pieces: &[&[u8]]) -> (Vec<String>, String) {
    let mut splitter = EventSplitter::default();
    let mut events = Vec::new();
    for piece in pieces {
        splitter.push(piece);
        while let Some(event) = splitter.next_event() {
            events.push(String::from_utf8_lossy(&event).into_owned());
        }
    }
    let rest = String::from_utf8_lossy(&splitter.rest()).into_owned();
    (events, rest)
}

#[test]
fn events_are_cut_wherever_the_network_cut() {
    let (cut, rest) = events(&[b"data: a\n", b"\nda", b"ta: b\r\n\r", b"\ndata: c"]);
    assert_eq!(cut, ["data: a\n\n", "data: b\r\n\r\n"]);
    assert_eq!(rest, "data: c");
}

#[test]
fn several_events_in_one_piece_are_several() {
    let (cut, _) = events(&[b"data: a\n\ndata: b\n\ndata: [DONE]\n\n"]);
    assert_eq!(cut.len(), 3);
}

#[test]
fn an_error_at_the_head_of_a_stream_is_seen_with_its_status() {
    let first = b"data: {\"error\":{\"message\":\"m\",\"code\":503}}\n\n";
    let (status, json) = leading_error(first).unwrap();
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(json.starts_with(b"{\"error\""));
    let named = b"event: error\ndata: {\"error\":{\"code\":\"400\"}}\n\ndata: x\n\n";
    assert_eq!(leading_error(named).unwrap().0, StatusCode::BAD_REQUEST);
    assert!(leading_error(b"data: {\"choices\":[]}\n\n").is_none());
}

#[test]
fn an_error_event_never_runs_into_half_an_event() {
    let mut boundary = Boundary::default();
    assert_eq!(error_event(b"{}", boundary), "event: error\ndata: {}\n\n");
    boundary.relayed(b"data: {\"cho");
    assert_eq!(
        error_event(b"{}", boundary),
        "\n\nevent: error\ndata: {}\n\n"
    );
    boundary.relayed(b"\n");
    boundary.relayed(b"\n");
    assert_eq!(error_event(b"{}", boundary), "event: error\ndata: {}\n\n");
}

proptest! {
    #[test]
    fn what_goes_in_comes_out(
        stream in "[a:\r\n]{0,40}",
        cuts in prop::collection::vec(0usize..40, 0..6),
    ) {
        let whole = events(&[stream.as_bytes()]);
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(stream.len())).collect();
        cuts.sort_unstable();
        let mut pieces = Vec::new();
        let mut start = 0;
        for cut in cuts {
            pieces.push(&stream.as_bytes()[start..cut]);
            start = cut;
        }
        pieces.push(&stream.as_bytes()[start..]);
        let cut = events(&pieces);
        prop_assert_eq!(cut.0.concat() + &cut.1, stream);
        prop_assert_eq!(cut, whole);
    }

    #[test]
    fn no_bytes_make_the_error_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        let mut event = b"event: error\ndata: ".to_vec();
        event.extend_from_slice(&bytes);
        let _ = leading_error(&event);
    }
}
