//! Any frames as control messages: what is read, writes and reads as the same.

use super::*;
use pd_fuzz::{Memory, fuzz};

/// A list in MessagePack states its length, and serde reserves up to 1 MiB for it: lists of groups with lists of cuts.
const MEMORY: Memory = Memory {
    base: 4 << 20,
    per_byte: 64,
};

/// Frames, each behind its length in two bytes.
fn cut(mut bytes: &[u8]) -> Vec<Bytes> {
    let mut frames = Vec::new();
    while let [low, high, rest @ ..] = bytes {
        let len = usize::from(u16::from_le_bytes([*low, *high])).min(rest.len());
        frames.push(Bytes::copy_from_slice(&rest[..len]));
        bytes = &rest[len..];
    }
    frames
}

#[test]
fn control_frames() {
    fuzz!("control_frames", MEMORY, |bytes| {
        let frames = cut(bytes);
        reads_back(&frames);
        // Bodies of every kind, behind a head that fits.
        let body = Bytes::copy_from_slice(bytes);
        for kind in Kind::ALL {
            let kind = Bytes::from_static(kind.name().as_bytes());
            let head = [Bytes::from_static(GUARD), Bytes::from_static(VERSION), kind];
            reads_back(&[&head[..], std::slice::from_ref(&body)].concat());
        }
    });
}

fn reads_back(frames: &[Bytes]) {
    match decode(frames) {
        Ok(message) => {
            let written = encode(&message);
            assert!(written.len() <= FRAMES_MAX);
            assert_eq!(decode(&written).expect("what was written reads"), message);
        }
        Err(error) => {
            let text = error.to_string();
            assert!(
                text.len() < 1024,
                "{} bytes of error for the log",
                text.len()
            );
        }
    }
}
