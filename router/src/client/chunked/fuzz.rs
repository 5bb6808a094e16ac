//! Any bytes of a worker as a chunked body, cut anywhere: the same bytes of the body, or the same refusal.

use super::*;
use pd_fuzz::{Memory, fuzz};

const MEMORY: Memory = Memory {
    base: 4096,
    per_byte: 16,
};

/// The body, whether it has ended, and what broke it.
fn body(pieces: &[&[u8]]) -> (Vec<u8>, bool, Option<ChunkError>) {
    let mut coding = Chunked::default();
    let (mut buffer, mut body) = (Vec::new(), Vec::new());
    for piece in pieces {
        buffer.extend_from_slice(piece);
        match coding.decode(&mut buffer) {
            Ok(Decoded { data, used_len }) => {
                assert!(data.end <= used_len && used_len <= buffer.len());
                body.extend_from_slice(&buffer[data]);
                buffer.drain(..used_len);
            }
            Err(error) => return (body, false, Some(error)),
        }
        assert!(coding == Chunked::Done || buffer.len() < TRAILERS_BYTES_MAX);
    }
    (body, coding == Chunked::Done, None)
}

/// The first byte says how long the pieces of the network are.
#[test]
fn chunked_body() {
    fuzz!("chunked_body", MEMORY, |bytes| {
        let Some((len, stream)) = bytes.split_first() else {
            return;
        };
        let pieces: Vec<&[u8]> = stream.chunks(usize::from(*len).max(1)).collect();
        let (whole, ended, error) = body(&[stream]);
        let (cut, cut_ended, cut_error) = body(&pieces);
        assert_eq!((ended, error.is_some()), (cut_ended, cut_error.is_some()));
        // What stood before the fault may have been relayed already.
        if error.is_none() {
            assert_eq!(whole, cut);
        }
    });
}
