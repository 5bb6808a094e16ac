//! ZMTP 3 by hand (RFC 23), so that a peer can say what no library would.

use anyhow::{Result, ensure};
use pd_protocol::control::{GUARD, Kind, VERSION};
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Flags of a frame.
pub const MORE: u8 = 1;
pub const LONG: u8 = 2;
pub const COMMAND: u8 = 4;
const GREETING_BYTES: usize = 64;

/// Signature, version, mechanism, as-server, filler.
pub fn greeting(major: u8, mechanism: &str) -> Vec<u8> {
    let mut bytes = vec![0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, major, 0];
    bytes.extend(mechanism.as_bytes());
    bytes.resize(GREETING_BYTES, 0);
    bytes
}

/// The command that ends the handshake.
pub fn ready(socket_type: &str) -> Vec<u8> {
    let mut body = b"\x05READY\x0bSocket-Type".to_vec();
    body.extend(
        u32::try_from(socket_type.len())
            .expect("a short name")
            .to_be_bytes(),
    );
    body.extend(socket_type.as_bytes());
    frame(COMMAND, &body)
}

pub fn frame(flags: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = match u8::try_from(body.len()) {
        Ok(len) => vec![flags, len],
        Err(_) => header(flags, body.len() as u64),
    };
    bytes.extend(body);
    bytes
}

/// The header of a long frame.
pub fn header(flags: u8, len: u64) -> Vec<u8> {
    let mut bytes = vec![flags | LONG];
    bytes.extend(len.to_be_bytes());
    bytes
}

/// All frames of one message.
pub fn message(parts: &[&[u8]]) -> Vec<u8> {
    let last = parts.len() - 1;
    let frames = parts.iter().enumerate();
    let frames = frames.map(|(i, part)| frame(if i < last { MORE } else { 0 }, part));
    frames.flatten().collect()
}

/// Everything that a peer sends before its first message.
pub fn handshake(socket_type: &str) -> Vec<u8> {
    [greeting(3, "NULL"), ready(socket_type)].concat()
}

/// A control message as decode and prefill write it.
pub fn control(kind: Kind, body: &impl Serialize, lists: &[&[u32]]) -> Result<Vec<u8>> {
    let body = rmp_serde::to_vec_named(body)?;
    let lists: Vec<Vec<u8>> = lists
        .iter()
        .map(|list| list.iter().flat_map(|index| index.to_le_bytes()).collect())
        .collect();
    let mut parts = vec![GUARD, VERSION, kind.name().as_bytes(), body.as_slice()];
    parts.extend(lists.iter().map(Vec::as_slice));
    Ok(message(&parts))
}

/// Greets a peer that has connected to us, as a PULL, and reads past its handshake.
pub async fn welcome(stream: &mut TcpStream) -> Result<()> {
    stream.write_all(&handshake("PULL")).await?;
    let mut theirs = [0; GREETING_BYTES];
    stream.read_exact(&mut theirs).await?;
    let (flags, _) = read_frame(stream).await?;
    ensure!(flags & COMMAND != 0, "a handshake ends with a command");
    Ok(())
}

/// The frames of the next message.
pub async fn read_message(stream: &mut TcpStream) -> Result<Vec<Vec<u8>>> {
    let mut parts = Vec::new();
    loop {
        let (flags, body) = read_frame(stream).await?;
        parts.push(body);
        if flags & MORE == 0 {
            return Ok(parts);
        }
    }
}

async fn read_frame(stream: &mut TcpStream) -> Result<(u8, Vec<u8>)> {
    let flags = stream.read_u8().await?;
    let len = if flags & LONG == 0 {
        u64::from(stream.read_u8().await?)
    } else {
        stream.read_u64().await?
    };
    let mut body = vec![0; usize::try_from(len)?];
    stream.read_exact(&mut body).await?;
    Ok((flags, body))
}
