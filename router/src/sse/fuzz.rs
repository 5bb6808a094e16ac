//! Any bytes of a worker as a stream of events, cut anywhere: all of them come out, in the same events.

use super::*;
use pd_fuzz::{Memory, fuzz, oracle};

/// A buffer that doubles, what is left of it, and a status read as JSON.
const MEMORY: Memory = Memory {
    base: 16 << 10,
    per_byte: 128,
};

fn events(pieces: &[&[u8]]) -> Vec<Bytes> {
    let mut splitter = EventSplitter::default();
    let mut events = Vec::new();
    for piece in pieces {
        splitter.push(piece);
        events.extend(std::iter::from_fn(|| splitter.next_event()));
    }
    events.push(splitter.rest());
    events
}

/// The first byte says how long the pieces of the network are.
#[test]
fn event_stream() {
    fuzz!("event_stream", MEMORY, |bytes| {
        let Some((len, stream)) = bytes.split_first() else {
            return;
        };
        let whole = events(&[stream]);
        let pieces: Vec<&[u8]> = stream.chunks(usize::from(*len).max(1)).collect();
        oracle(|| {
            assert_eq!(events(&pieces), whole);
            assert_eq!(whole.concat(), stream);
        });
        for event in &whole {
            let Ok(text) = std::str::from_utf8(event) else {
                continue;
            };
            if let Some(data) = data(text) {
                assert!(data.len() <= event.len() && !data.contains('\n'));
            }
        }
        if let Some((status, json)) = leading_error(stream) {
            assert!(status.is_client_error() || status.is_server_error());
            assert!(json.len() <= stream.len());
        }
        let mut boundary = Boundary::default();
        pieces.iter().for_each(|piece| boundary.relayed(piece));
        let event = error_event(b"{}", boundary);
        assert!(event.ends_with(b"event: error\ndata: {}\n\n"));
    });
}
