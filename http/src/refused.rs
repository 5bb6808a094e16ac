//! What a client still sends of a body that is refused.

use axum::body::Body;
use bytes::Bytes;
use http_body_util::BodyExt;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

const BYTES_MAX: usize = 1 << 30;
const LIMIT: Duration = Duration::from_secs(10);
/// After so much of a body there is a pause, of one body at a time: clients that are served need the cores.
const PIECE_BYTES: usize = 256 << 10;
const PAUSE: Duration = Duration::from_millis(1);
static TURNS: Semaphore = Semaphore::const_new(1);

/// Reads it, for a while, and drops it: a client that is still writing when its connection closes does not get to read
/// the answer.
pub async fn discard(mut body: Body) {
    let all = async {
        let (mut discarded, mut paused_at) = (0, 0);
        while let Some(Ok(frame)) = body.frame().await {
            discarded += frame.data_ref().map_or(0, Bytes::len);
            if discarded > BYTES_MAX {
                break;
            }
            if discarded - paused_at > PIECE_BYTES {
                let _turn = TURNS.acquire().await;
                sleep(PAUSE).await;
                paused_at = discarded;
            }
        }
    };
    // Late or not, the answer is the same.
    let _ = timeout(LIMIT, all).await;
}
