//! Facts about ZMTP as we speak it.

use super::*;
use crate::admission::tests::{left, mk_memory};

const PIECE: usize = 64 << 10;

fn mk_frames(lens: &[usize]) -> Vec<Bytes> {
    let frame = |&len: &usize| Bytes::from(vec![9; len]);
    lens.iter().map(frame).collect()
}

async fn written(frames: &[Bytes]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_message(&mut bytes, frames).await.unwrap();
    bytes
}

/// What a peer that sends `bytes` and closes is read as.
async fn read_of(bytes: &[u8]) -> Result<Option<Vec<Bytes>>, ZmtpError> {
    let memory = mk_memory(1000, 1000);
    let read = read_message(&mut &*bytes, &memory).await;
    let read = read.map(|read| read.map(|(frames, _held)| frames));
    assert_eq!(left(&memory), (1000, 1000));
    read
}

#[tokio::test]
async fn push_and_pull_shake_hands_and_others_do_not() {
    for (one, other, fits) in [
        (SocketType::Push, SocketType::Pull, true),
        (SocketType::Pull, SocketType::Push, true),
        (SocketType::Pull, SocketType::Pull, false),
    ] {
        let (mut a, mut b) = tokio::io::duplex(4096);
        let (a, b) = tokio::join!(greet(&mut a, one), greet(&mut b, other));
        assert_eq!((a.is_ok(), b.is_ok()), (fits, fits));
    }
}

#[tokio::test]
async fn what_greets_otherwise_is_named() {
    let greeting = greeting();
    let version_2 = [&greeting[..10], &[2], &greeting[11..]].concat();
    let curve = [&greeting[..12], b"CURVE", &greeting[17..]].concat();
    let http = b"GET / HTTP/1.1\r\n".repeat(5);
    for stranger in [version_2, curve, http] {
        let (mut a, mut b) = tokio::io::duplex(4096);
        b.write_all(&stranger).await.unwrap();
        let ended = greet(&mut a, SocketType::Pull).await;
        assert!(matches!(ended, Err(ZmtpError::Greeting)), "{ended:?}");
    }
    let no_ready = [&greeting[..], &[COMMAND, 3, 2, b'N', b'O']].concat();
    let half_property = [&greeting[..], &[COMMAND, 7], READY, &[200]].concat();
    let endless = [&greeting[..], &[COMMAND | LONG], &[0xff; 8]].concat();
    let message = [&greeting[..], &[0, 1, 1]].concat();
    for stranger in [no_ready, half_property, endless, message] {
        let (mut a, mut b) = tokio::io::duplex(4096);
        b.write_all(&stranger).await.unwrap();
        let ended = greet(&mut a, SocketType::Pull).await;
        assert!(matches!(ended, Err(ZmtpError::Handshake(_))), "{ended:?}");
    }
}

#[tokio::test]
async fn a_message_is_read_as_it_was_written() {
    for lens in [
        &[0][..],
        &[255, 256],
        &[1, TOGETHER_BYTES, 2],
        &[14, 1, 8, 300_000],
    ] {
        let frames = mk_frames(lens);
        let bytes = written(&frames).await;
        assert_eq!(read_of(&bytes).await.unwrap(), Some(frames));
    }
    assert_eq!(read_of(&[]).await.unwrap(), None);
}

#[tokio::test]
async fn a_frame_that_states_too_much_ends_the_connection() {
    let bytes = [&[LONG][..], &(1u64 << 62).to_be_bytes()].concat();
    let read = read_of(&bytes).await;
    assert!(matches!(read, Err(ZmtpError::FrameLength(_))), "{read:?}");
}

#[tokio::test]
async fn a_message_has_so_many_frames_and_bytes() {
    let endless = [MORE, 1, 0].repeat(FRAMES_MAX + 1);
    let read = read_of(&endless).await;
    assert!(matches!(read, Err(ZmtpError::FrameCount)), "{read:?}");
    let large = written(&mk_frames(&[FRAME_BYTES_MAX, FRAME_BYTES_MAX])).await;
    let read = read_of(&large).await;
    assert!(matches!(read, Err(ZmtpError::MessageLength)), "{read:?}");
}

#[tokio::test]
async fn half_a_message_and_flags_of_none_end_the_connection() {
    for half in [&[0, 5, 1, 2][..], &[MORE, 1, 7], &[LONG, 0]] {
        let read = read_of(half).await;
        assert!(matches!(read, Err(ZmtpError::Half)), "{read:?}");
    }
    let read = read_of(&[COMMAND, 1, 7]).await;
    assert!(matches!(read, Err(ZmtpError::Flags(COMMAND))), "{read:?}");
}

#[tokio::test(start_paused = true)]
async fn greeting_and_handshake_have_a_deadline() {
    let greeting = greeting();
    for part in [&greeting[..0], &greeting[..5], &greeting] {
        let (mut stranger, mut peer) = tokio::io::duplex(4096);
        stranger.write_all(part).await.unwrap();
        let began = Instant::now();
        let ended = greet(&mut peer, SocketType::Pull).await;
        assert!(matches!(ended, Err(ZmtpError::NoGreeting)), "{ended:?}");
        assert_eq!(began.elapsed(), GREETING_LIMIT);
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_has_a_deadline_and_silence_before_it_has_none() {
    let (mut stranger, mut peer) = tokio::io::duplex(4096);
    let memory = mk_memory(64, 64);
    let began = Instant::now();
    let read = tokio::spawn(async move { read_message(&mut peer, &memory).await.map(|_| ()) });
    let silence = Duration::from_secs(3600);
    tokio::time::sleep(silence).await;
    stranger.write_all(&[MORE, 1, 7]).await.unwrap();
    let read = read.await.unwrap();
    assert!(matches!(read, Err(ZmtpError::MessageLate)), "{read:?}");
    assert_eq!(began.elapsed(), silence + MESSAGE_LIMIT);
}

#[tokio::test(start_paused = true)]
async fn the_first_message_has_to_begin_in_time() {
    let (_silent, mut peer) = tokio::io::duplex(4096);
    let began = Instant::now();
    let read = read_first_message(&mut peer, &mk_memory(64, 64)).await;
    assert!(matches!(read, Err(ZmtpError::NoMessage)), "{read:?}");
    assert_eq!(began.elapsed(), FIRST_MESSAGE_LIMIT);
}

/// A message of nine pieces, all but its end.
fn mk_half() -> Vec<u8> {
    let mut half = vec![LONG];
    half.extend((9 * PIECE as u64).to_be_bytes());
    half.resize(half.len() + 8 * PIECE, 9);
    half
}

#[tokio::test(start_paused = true)]
async fn strangers_with_half_messages_wait_for_each_other_and_give_all_back() {
    let memory = mk_memory(64, 12);
    let began = Instant::now();
    let strangers = [(); 3].map(|()| {
        let memory = memory.clone();
        tokio::spawn(async move {
            let (mut stranger, mut peer) = tokio::io::duplex(1 << 20);
            stranger.write_all(&mk_half()).await.unwrap();
            let read = read_message(&mut peer, &memory).await;
            assert!(matches!(read, Err(ZmtpError::MessageLate)), "{read:?}");
            drop(stranger);
        })
    });
    for stranger in strangers {
        stranger.await.unwrap();
    }
    // One after the other: while one waits for memory, its own time stands still.
    assert_eq!(began.elapsed(), 3 * MESSAGE_LIMIT);
    assert_eq!(left(&memory), (64, 12));
}

#[tokio::test(start_paused = true)]
async fn a_message_waits_for_memory_only_so_long() {
    let memory = mk_memory(64, 8);
    let all = memory.take_all(8).await;
    let began = Instant::now();
    let read = read_message(&mut &*mk_half(), &memory).await;
    assert!(matches!(read, Err(ZmtpError::NoMemory)), "{read:?}");
    assert_eq!(began.elapsed(), MEMORY_LIMIT);
    drop(all);
    assert_eq!(left(&memory), (64, 8));
}
