//! Messages of the two ends over TCP: a JSON line each.

use crate::wait::PATIENCE;
use anyhow::{Context, Result};
use pd_verbs::{Endpoint, RemoteRegion};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

/// The receiver's memory and its ends, one for each of the writer's.
#[derive(Serialize, Deserialize)]
pub(crate) struct Offer {
    pub(crate) ends: Vec<Endpoint>,
    pub(crate) region: RemoteRegion,
}

/// The writer's result.
#[derive(Serialize, Deserialize)]
pub(crate) enum Outcome {
    /// All pieces were written; `immediates` immediates are in flight.
    Written { immediates: usize },
    /// No byte may have changed.
    Refused,
}

pub(crate) struct Wire {
    stream: BufReader<TcpStream>,
}

// === impl Wire ===

impl Wire {
    pub(crate) fn new(stream: TcpStream) -> Result<Self> {
        stream.set_read_timeout(Some(PATIENCE))?;
        let stream = BufReader::new(stream);
        Ok(Self { stream })
    }

    pub(crate) fn send(&mut self, what: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_vec(what)?;
        line.push(b'\n');
        Ok(self.stream.get_mut().write_all(&line)?)
    }

    pub(crate) fn hear<T: DeserializeOwned>(&mut self) -> Result<T> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        serde_json::from_str(&line).context("the other end said something else or nothing")
    }
}
