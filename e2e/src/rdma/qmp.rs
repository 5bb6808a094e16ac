//! The emulator's control socket: a JSON object a line each way (QMP).

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(10);

/// Runs one command on the emulator that listens at `socket`.
///
/// # Errors
/// It does not answer, or refuses.
pub(crate) async fn execute(socket: &Path, command: &str, arguments: Value) -> Result<()> {
    let talk = async {
        let stream = UnixStream::connect(socket).await.context("connect")?;
        let mut stream = BufReader::new(stream);
        // Its greeting; it then wants to hear this first.
        line(&mut stream).await?;
        for (command, arguments) in [("qmp_capabilities", json!({})), (command, arguments)] {
            let request = json!({"execute": command, "arguments": arguments});
            stream.write_all(format!("{request}\n").as_bytes()).await?;
            answer(&mut stream).await?;
        }
        Ok(())
    };
    let done = timeout(PATIENCE, talk)
        .await
        .unwrap_or_else(|_| bail!("no answer in {PATIENCE:?}"));
    done.with_context(|| format!("{command} on the emulator"))
}

/// Skips unsolicited events.
async fn answer(stream: &mut BufReader<UnixStream>) -> Result<()> {
    loop {
        let answer = line(stream).await?;
        if answer.get("return").is_some() {
            return Ok(());
        }
        if let Some(error) = answer.get("error") {
            bail!("it says {error}");
        }
    }
}

async fn line(stream: &mut BufReader<UnixStream>) -> Result<Value> {
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    serde_json::from_str(&line).with_context(|| format!("it says {line:?}"))
}
