//! Facts about the chunked coding.

use super::*;
use proptest::prelude::*;

/// Decodes pieces as they arrive, and gives the body and what is left undecoded.
fn decode(pieces: &[&[u8]]) -> Result<(Vec<u8>, Vec<u8>, Chunked), ChunkError> {
    let mut chunked = Chunked::default();
    let mut waiting = Vec::new();
    let mut body = Vec::new();
    for piece in pieces {
        waiting.extend_from_slice(piece);
        let decoded = chunked.decode(&mut waiting)?;
        body.extend_from_slice(&waiting[decoded.data]);
        waiting.drain(..decoded.used_len);
    }
    Ok((body, waiting, chunked))
}

fn encode(chunks: &[Vec<u8>]) -> Vec<u8> {
    let mut wire = Vec::new();
    for chunk in chunks {
        wire.extend_from_slice(format!("{:X}\r\n", chunk.len()).as_bytes());
        wire.extend_from_slice(chunk);
        wire.extend_from_slice(b"\r\n");
    }
    wire.extend_from_slice(b"0\r\n\r\n");
    wire
}

#[test]
fn chunks_that_came_together_are_one_piece() {
    let mut wire = b"3\r\nabc\r\n2;x=y\r\nde\r\n4\r\nfg".to_vec();
    let decoded = Chunked::default().decode(&mut wire).unwrap();
    assert_eq!(&wire[decoded.data], b"abcdefg");
    assert_eq!(decoded.used_len, wire.len());
}

#[test]
fn trailers_are_skipped_and_what_follows_is_left() {
    let (body, rest, chunked) = decode(&[b"1\r\na\r\n0\r\nx: 1\r\n\r\nHTTP"]).unwrap();
    assert_eq!(body, b"a");
    assert_eq!(rest, b"HTTP");
    assert_eq!(chunked, Chunked::Done);
}

#[test]
fn a_broken_coding_is_an_error() {
    assert_eq!(decode(&[b"zz\r\n"]), Err(ChunkError::Size));
    assert_eq!(decode(&[b"\r\n"]), Err(ChunkError::Size));
    assert_eq!(decode(&[b"11111111111111111\r\n"]), Err(ChunkError::Size));
    assert_eq!(decode(&[b"1\r\nab\r\n"]), Err(ChunkError::DataEnd));
    assert_eq!(decode(&[b"0\r\nx\n\r\n"]), Err(ChunkError::Trailers));
}

#[test]
fn an_endless_line_is_refused() {
    let extension = [b"1;".as_slice(), &[b'x'; LINE_BYTES_MAX]].concat();
    assert_eq!(decode(&[&extension]), Err(ChunkError::Size));
    let trailer = [b"0\r\n".as_slice(), &[b'x'; LINE_BYTES_MAX]].concat();
    assert_eq!(decode(&[&trailer]), Err(ChunkError::Trailers));
    let trailers = [
        b"0\r\n".as_slice(),
        &b"x: 1\r\n".repeat(TRAILERS_BYTES_MAX / 6 + 1),
    ]
    .concat();
    assert_eq!(decode(&[&trailers]), Err(ChunkError::Trailers));
}

proptest! {
    #[test]
    fn a_body_survives_any_chunks_and_any_cuts(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..12),
        cuts in prop::collection::vec(1usize..30, 1..60),
    ) {
        let wire = encode(&chunks);
        let mut pieces = Vec::new();
        let mut rest = wire.as_slice();
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, left) = rest.split_at((*cut).min(rest.len()));
            pieces.push(piece);
            rest = left;
        }
        let (body, left, chunked) = decode(&pieces).unwrap();
        prop_assert_eq!(body, chunks.concat());
        prop_assert!(left.is_empty());
        prop_assert_eq!(chunked, Chunked::Done);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut bytes = [b"3\r\n".as_slice(), &bytes].concat();
        let mut chunked = Chunked::default();
        if let Ok(decoded) = chunked.decode(&mut bytes) {
            prop_assert!(decoded.used_len <= bytes.len());
            prop_assert!(decoded.data.end <= decoded.used_len);
        }
    }
}
