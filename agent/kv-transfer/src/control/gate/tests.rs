//! Facts about the gate.

use super::*;

async fn forwarded(bytes: &[u8]) -> (Vec<u8>, Result<(), GateError>) {
    let mut greeted = vec![0; GREETING_BYTES];
    greeted.extend_from_slice(bytes);
    let mut out = Vec::new();
    let result = forward(greeted.as_slice(), &mut out).await;
    (out.split_off(GREETING_BYTES), result)
}

#[tokio::test]
async fn frames_within_bounds_pass_unchanged() {
    let mut bytes = vec![FLAG_MORE, 2, 7, 7, FLAG_LONG];
    bytes.extend(300u64.to_be_bytes());
    bytes.extend([9; 300]);
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
