//! Facts about the gate.

use super::*;

async fn forwarded(bytes: &[u8]) -> (Vec<u8>, Result<(), GateError>) {
    let mut greeted = vec![0; GREETING_BYTES];
    greeted.extend_from_slice(bytes);
    let mut out = Vec::new();
    let mut greeting = [0; GREETING_BYTES];
    greeting[0] = greeted[0];
    let pieces = Arc::new(Semaphore::new(PIECES_MAX));
    let result = forward(&greeted[1..], greeting, &mut out, &pieces).await;
    assert_eq!(pieces.available_permits(), PIECES_MAX);
    (out.split_off(GREETING_BYTES), result)
}

#[tokio::test]
async fn frames_within_bounds_pass_unchanged() {
    let mut bytes = vec![FLAG_MORE, 2, 7, 7, FLAG_LONG];
    bytes.extend(300_000u64.to_be_bytes());
    bytes.extend([9; 300_000]);
    let (out, result) = forwarded(&bytes).await;
    assert!(result.is_ok());
    assert_eq!(out, bytes);
}

#[tokio::test]
async fn a_frame_that_states_too_much_closes_the_connection() {
    let mut bytes = vec![FLAG_LONG];
    bytes.extend((1u64 << 62).to_be_bytes());
    let (out, result) = forwarded(&bytes).await;
    assert!(matches!(result, Err(GateError::FrameLength(_))));
    assert!(out.is_empty());
}

#[tokio::test]
async fn an_endless_message_closes_the_connection() {
    let bytes = [FLAG_MORE, 1, 0].repeat(FRAMES_MAX + 1);
    let (_, result) = forwarded(&bytes).await;
    assert!(matches!(result, Err(GateError::FrameCount)));
}

#[tokio::test]
async fn half_a_frame_is_not_forwarded() {
    let (out, result) = forwarded(&[0, 5, 1, 2]).await;
    assert!(result.is_ok());
    assert!(out.is_empty());
}

#[tokio::test]
async fn half_a_message_is_not_forwarded() {
    let (out, result) = forwarded(&[FLAG_MORE, 1, 7]).await;
    assert!(result.is_ok());
    assert!(out.is_empty());
}

#[tokio::test]
async fn a_message_of_many_large_frames_closes_the_connection() {
    let mut bytes = Vec::new();
    for _ in 0..2 {
        bytes.extend([FLAG_MORE | FLAG_LONG]);
        bytes.extend((FRAME_BYTES_MAX as u64).to_be_bytes());
        bytes.resize(bytes.len() + FRAME_BYTES_MAX, 9);
    }
    let (out, result) = forwarded(&bytes).await;
    assert!(matches!(result, Err(GateError::MessageLength)));
    assert!(out.is_empty());
}

/// A peer that sends `bytes` and then nothing.
async fn ends_after(bytes: &[u8]) -> (Duration, GateError) {
    let (mut stranger, peer) = tokio::io::duplex(1 << 20);
    stranger.write_all(bytes).await.unwrap();
    let began = tokio::time::Instant::now();
    let pieces = Arc::new(Semaphore::new(PIECES_MAX));
    let result = forward(peer, [0; GREETING_BYTES], &mut tokio::io::sink(), &pieces).await;
    (began.elapsed(), result.unwrap_err())
}

#[tokio::test(start_paused = true)]
async fn a_greeting_a_handshake_and_a_message_have_deadlines() {
    let (after, error) = ends_after(&[0; 5]).await;
    assert_eq!(after, GREETING_LIMIT);
    assert!(matches!(error, GateError::NoGreeting), "{error}");
    let greeting = [0; GREETING_BYTES - 1];
    let (after, error) = ends_after(&greeting).await;
    assert_eq!(after, GREETING_LIMIT);
    assert!(matches!(error, GateError::NoGreeting), "{error}");
    let half = [&greeting[..], &[FLAG_MORE, 1, 7]].concat();
    let (after, error) = ends_after(&half).await;
    assert_eq!(after, MESSAGE_LIMIT);
    assert!(matches!(error, GateError::MessageLate), "{error}");
}

#[tokio::test(start_paused = true)]
async fn strangers_with_half_messages_hold_no_more_than_all_may_and_give_it_back() {
    let pieces = Arc::new(Semaphore::new(4));
    let mut half = vec![0; GREETING_BYTES - 1];
    half.push(FLAG_LONG);
    half.extend((8 * PIECE_BYTES as u64).to_be_bytes());
    half.resize(half.len() + 7 * PIECE_BYTES, 9);
    let strangers = [(); 3].map(|()| {
        let (half, pieces) = (half.clone(), Arc::clone(&pieces));
        tokio::spawn(async move {
            let (mut stranger, peer) = tokio::io::duplex(1 << 20);
            stranger.write_all(&half).await.unwrap();
            let ended = forward(peer, [0; GREETING_BYTES], &mut tokio::io::sink(), &pieces).await;
            assert!(matches!(ended, Err(GateError::MessageLate)), "{ended:?}");
            drop(stranger);
        })
    });
    for stranger in strangers {
        stranger.await.unwrap();
    }
    assert_eq!(pieces.available_permits(), 4);
}

#[test]
fn an_address_has_so_many_connections_and_others_are_let_in() {
    let gate = Arc::new(Gate {
        inner: SocketAddr::from(([127, 0, 0, 1], 1)),
        pieces: Arc::new(Semaphore::new(1)),
        by_address: Mutex::default(),
        log: LogLimit::default(),
    });
    let (one, other) = ([127, 0, 0, 1].into(), [127, 0, 0, 2].into());
    let count = || gate.count(one);
    let mut open: Vec<_> = (0..CONNECTIONS_PER_ADDRESS_MAX).map(|_| count()).collect();
    assert!(open.iter().all(Option::is_some));
    assert!(count().is_none());
    assert!(gate.count(other).is_some());
    open.pop();
    assert!(count().is_some());
    open.clear();
    assert!(gate.by_address.lock().is_empty());
}
