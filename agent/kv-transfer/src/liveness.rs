//! Whether the other process lives: a connection of its own per session, beside ZMQ, which hides
//! that a peer has gone. A closed socket is a death, known at once; silence is a freeze, known
//! after `patience` (interval × failures). Both sides beat, so both notice.

use crate::clock::Instant;
use crate::failure::FailureReason;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::MissedTickBehavior;

const BEAT: u8 = b'.';

/// Beats and listens until the peer is lost; says why.
pub(crate) async fn watch<S: AsyncRead + AsyncWrite + Unpin>(
    peer: &str,
    mut stream: S,
    interval: Duration,
    patience: Duration,
) -> FailureReason {
    let mut beats = tokio::time::interval(interval);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let silence = tokio::time::sleep(patience);
    tokio::pin!(silence);
    let mut heard = [0; 64];
    let closed = || {
        FailureReason::peer(format!(
            "{peer} closed its connection: it ended or restarted"
        ))
    };
    loop {
        tokio::select! {
            biased;
            read = stream.read(&mut heard) => match read {
                Ok(0) => return closed(),
                Ok(_) => silence.as_mut().reset(Instant::now() + patience),
                Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return closed(),
                Err(error) => return FailureReason::peer(format!("connection to {peer} broke: {error}")),
            },
            _ = beats.tick() => {
                // A frozen peer's socket buffers a beat for hours; only the reading side decides.
                if let Err(error) = beat(&mut stream).await {
                    return FailureReason::peer(format!("connection to {peer} broke: {error}"));
                }
            }
            () = &mut silence => {
                return FailureReason::peer(format!("{peer} was silent for {patience:?}: frozen or cut off"));
            }
        }
    }
}

async fn beat<S: AsyncWrite + Unpin>(stream: &mut S) -> std::io::Result<()> {
    stream.write_all(&[BEAT]).await?;
    stream.flush().await
}

#[cfg(test)]
mod tests;
