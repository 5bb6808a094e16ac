//! The log of a seed's processes: they have one, which is that of this process, and it may take nothing.

use rand::RngExt;
use rand::rngs::StdRng;
use std::fs::File;
use std::io::{self, pipe};
use std::mem;
use tracing_subscriber::EnvFilter;

/// What becomes of what is logged.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Log {
    /// Nothing is.
    Off,
    /// Every write fails: its disk is full.
    Full,
    /// No write ends: it goes into a pipe that no one reads.
    Blocked,
}

/// Share of seeds that log.
const LOGS: f64 = 0.05;

// === impl Log ===

impl Log {
    pub(crate) fn draw(rng: &mut StdRng) -> Self {
        match (rng.random_bool(LOGS), rng.random()) {
            (false, _) => Self::Off,
            (true, false) => Self::Full,
            (true, true) => Self::Blocked,
        }
    }

    /// Logs with all details from now on, as the product's programs do.
    pub(crate) fn begin(self) -> io::Result<()> {
        match self {
            Self::Off => return Ok(()),
            Self::Full => {
                let full = File::options().write(true).open("/dev/full")?;
                rustix::stdio::dup2_stderr(full)?;
            }
            Self::Blocked => {
                let (reader, writer) = pipe()?;
                // Writers would hear that it is gone.
                mem::forget(reader);
                rustix::stdio::dup2_stderr(writer)?;
            }
        }
        pd_log::init(EnvFilter::new("debug"));
        Ok(())
    }
}
