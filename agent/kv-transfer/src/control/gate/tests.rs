//! Facts about the gate.

use super::*;

fn mk_memory(own: usize, all: usize) -> Memory {
    Memory {
        own: Arc::new(Semaphore::new(own)),
        all: Arc::new(Semaphore::new(all)),
    }
}

/// Pieces that nothing holds, of an address and of all.
fn left(memory: &Memory) -> (usize, usize) {
    (
        memory.own.available_permits(),
        memory.all.available_permits(),
    )
}

async fn forwarded(bytes: &[u8]) -> (Vec<u8>, Result<(), GateError>) {
    let mut greeted = vec![0; GREETING_BYTES];
    greeted.extend_from_slice(bytes);
    let mut out = Vec::new();
    let mut greeting = [0; GREETING_BYTES];
    greeting[0] = greeted[0];
    let memory = mk_memory(PIECES_PER_ADDRESS_MAX, PIECES_MAX);
    let result = forward(&greeted[1..], greeting, &mut out, &memory).await;
    assert_eq!(left(&memory), (PIECES_PER_ADDRESS_MAX, PIECES_MAX));
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
    let memory = mk_memory(PIECES_PER_ADDRESS_MAX, PIECES_MAX);
    let result = forward(peer, [0; GREETING_BYTES], &mut tokio::io::sink(), &memory).await;
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

/// A message of nine pieces, all but its end.
fn mk_half() -> Vec<u8> {
    let mut half = vec![0; GREETING_BYTES - 1];
    half.push(FLAG_LONG);
    half.extend((9 * PIECE_BYTES as u64).to_be_bytes());
    half.resize(half.len() + 8 * PIECE_BYTES, 9);
    half
}

#[tokio::test(start_paused = true)]
async fn strangers_with_half_messages_wait_for_each_other_and_give_all_back() {
    let memory = mk_memory(64, 12);
    let began = Instant::now();
    let strangers = [(); 3].map(|()| {
        let memory = memory.clone();
        tokio::spawn(async move {
            let (mut stranger, peer) = tokio::io::duplex(1 << 20);
            stranger.write_all(&mk_half()).await.unwrap();
            let ended = forward(peer, [0; GREETING_BYTES], &mut tokio::io::sink(), &memory).await;
            assert!(matches!(ended, Err(GateError::MessageLate)), "{ended:?}");
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
    let all = Arc::clone(&memory.all).acquire_many_owned(8).await.unwrap();
    let (mut stranger, peer) = tokio::io::duplex(1 << 20);
    stranger.write_all(&mk_half()).await.unwrap();
    let began = Instant::now();
    let ended = forward(peer, [0; GREETING_BYTES], &mut tokio::io::sink(), &memory).await;
    assert!(matches!(ended, Err(GateError::NoMemory)), "{ended:?}");
    assert_eq!(began.elapsed(), MEMORY_LIMIT);
    drop(all);
    assert_eq!(left(&memory), (64, 8));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_falls_silent_after_a_large_message_holds_none_of_the_memory() {
    let memory = mk_memory(64, 64);
    let (mut stranger, peer) = tokio::io::duplex(2 << 20);
    let mut whole = mk_half();
    whole.resize(whole.len() + PIECE_BYTES, 9);
    stranger.write_all(&whole).await.unwrap();
    let (mut read, mut out) = tokio::io::duplex(2 << 20);
    let of_it = memory.clone();
    let forwarding =
        tokio::spawn(async move { forward(peer, [0; GREETING_BYTES], &mut out, &of_it).await });
    let mut forwarded = vec![0; whole.len() + 1];
    read.read_exact(&mut forwarded).await.unwrap();
    while left(&memory) != (64, 64) {
        tokio::task::yield_now().await;
    }
    drop(stranger);
    assert!(forwarding.await.unwrap().is_ok());
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
