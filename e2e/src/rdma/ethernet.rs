//! The Ethernet between virtual hosts: a switch in this process, so that any number of NICs can be on
//! it, and a link can be cut or lose frames on purpose.
//!
//! Each link is a Unix socket that its NIC connects to; a frame travels with its length before it.

use anyhow::{Context, Result, ensure};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Frames that wait for a NIC; more are dropped, as a switch does.
const QUEUE_FRAMES_MAX: usize = 4096;
/// Above every frame at an MTU of 9000 bytes.
const FRAME_BYTES_MAX: usize = 16 << 10;

type Mac = [u8; 6];

/// A switch and its links; they end when it is dropped.
pub struct Ethernet {
    folder: PathBuf,
    switch: Arc<Mutex<Switch>>,
    links: JoinSet<()>,
}

#[derive(Default)]
struct Switch {
    ports: Vec<Port>,
    /// Where an address was seen last.
    known: HashMap<Mac, usize>,
}

struct Port {
    name: String,
    /// Where frames for its NIC go, once it is connected.
    tx: Option<mpsc::Sender<Arc<[u8]>>>,
    trouble: Trouble,
    frames: u64,
}

/// What is wrong with a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trouble {
    #[default]
    None,
    /// Nothing passes, and neither end notices: as a cable pulled behind the next switch.
    Cut,
    /// Every n-th frame from its NIC is lost.
    LosesEvery(u64),
}

// === impl Ethernet ===

impl Ethernet {
    /// A switch without links, whose sockets lie in `folder`.
    pub fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            switch: Arc::default(),
            links: JoinSet::new(),
        }
    }

    /// Adds a link; the socket that its NIC connects to.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub fn add_link(&mut self, name: &str) -> Result<PathBuf> {
        let path = self.folder.join(format!("{name}.link"));
        let listener =
            UnixListener::bind(&path).with_context(|| format!("listen for the NIC of {name}"))?;
        let port = self.switch.lock().add_port(name);
        let switch = Arc::clone(&self.switch);
        self.links.spawn(async move {
            // A NIC that is gone may come back.
            while let Ok((nic, _)) = listener.accept().await {
                // What ends a link is the NIC's end, or nonsense from it.
                let _ = serve(&switch, port, nic).await;
            }
        });
        Ok(path)
    }

    /// Makes a link faulty, or whole again.
    ///
    /// # Errors
    /// There is no such link.
    pub fn set_trouble(&self, name: &str, trouble: Trouble) -> Result<()> {
        let mut switch = self.switch.lock();
        let mut ports = switch.ports.iter_mut();
        let port = ports.find(|port| port.name == name);
        port.with_context(|| format!("there is no link {name}"))?
            .trouble = trouble;
        Ok(())
    }
}

/// Carries frames of one NIC until it is gone.
async fn serve(switch: &Arc<Mutex<Switch>>, port: usize, nic: UnixStream) -> Result<()> {
    let (from_nic, to_nic) = nic.into_split();
    let (tx, frames_rx) = mpsc::channel(QUEUE_FRAMES_MAX);
    switch.lock().ports[port].tx = Some(tx);
    tokio::select! {
        read = read_frames(switch, port, from_nic) => read,
        written = write_frames(frames_rx, to_nic) => written,
    }
}

async fn read_frames(
    switch: &Mutex<Switch>,
    port: usize,
    mut from_nic: OwnedReadHalf,
) -> Result<()> {
    loop {
        let len = usize::try_from(from_nic.read_u32().await?)?;
        ensure!(len <= FRAME_BYTES_MAX, "a frame of {len} bytes");
        let mut frame = vec![0; len];
        from_nic.read_exact(&mut frame).await?;
        switch.lock().forward(port, frame.into());
    }
}

async fn write_frames(
    mut frames_rx: mpsc::Receiver<Arc<[u8]>>,
    mut to_nic: OwnedWriteHalf,
) -> Result<()> {
    while let Some(frame) = frames_rx.recv().await {
        to_nic.write_u32(u32::try_from(frame.len())?).await?;
        to_nic.write_all(&frame).await?;
    }
    Ok(())
}

// === impl Switch ===

impl Switch {
    fn add_port(&mut self, name: &str) -> usize {
        self.ports.push(Port {
            name: name.to_owned(),
            tx: None,
            trouble: Trouble::None,
            frames: 0,
        });
        self.ports.len() - 1
    }

    /// To the port where its destination was seen, or to all others.
    fn forward(&mut self, from: usize, frame: Arc<[u8]>) {
        let Some((dst, src)) = addresses(&frame) else {
            return;
        };
        if !self.ports[from].passes() {
            return;
        }
        self.known.insert(src, from);
        match self.known.get(&dst) {
            Some(&port) => self.ports[port].deliver(frame),
            None => {
                let others = self
                    .ports
                    .iter()
                    .enumerate()
                    .filter(|&(port, _)| port != from);
                others.for_each(|(_, port)| port.deliver(Arc::clone(&frame)));
            }
        }
    }
}

/// Destination and source.
fn addresses(frame: &[u8]) -> Option<(Mac, Mac)> {
    let dst = frame.get(..6)?.try_into().ok()?;
    let src = frame.get(6..12)?.try_into().ok()?;
    Some((dst, src))
}

// === impl Port ===

impl Port {
    /// Counts a frame of its NIC; whether it gets through.
    fn passes(&mut self) -> bool {
        self.frames += 1;
        match self.trouble {
            Trouble::None => true,
            Trouble::Cut => false,
            Trouble::LosesEvery(n) => !self.frames.is_multiple_of(n.max(1)),
        }
    }

    fn deliver(&self, frame: Arc<[u8]>) {
        if let (Some(tx), true) = (&self.tx, self.trouble != Trouble::Cut) {
            // A full queue drops the frame, and a closed one belongs to a NIC that is gone.
            let _ = tx.try_send(frame);
        }
    }
}

#[cfg(test)]
mod tests;
