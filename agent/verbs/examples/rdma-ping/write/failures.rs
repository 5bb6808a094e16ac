//! Writes that must fail, and how their failure is reported.

use crate::pattern::PIECE_BYTES;
use crate::receive::RECEIVES;
use crate::wait::{self, PATIENCE};
use crate::wire::Outcome;
use crate::write::{SEND_DEPTH, Writer};
use anyhow::{Result, bail, ensure};
use pd_verbs::queue_pair::Rts;
use pd_verbs::{
    Completion, CompletionQueue, DeviceEvent, MemoryRegion, QueuePair, RemoteAddr, Retry, WcStatus,
    WorkError, Write,
};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Writes that arrive before a fault may be made.
const WARM_WRITES: u32 = 20;
/// How long an emulated, busy machine may stall.
const STANDSTILL: Duration = Duration::from_secs(15);

impl Writer {
    /// Sends immediates of no bytes until one meets no receive.
    pub(super) fn flood(&mut self) -> Result<Outcome> {
        let write = Write {
            src: &[],
            dst: self.region.at(0, 0)?,
            immediate: Some(1),
            tag: 0,
            signalled: true,
        };
        self.ends[0].post(&[write; RECEIVES as usize + 1])?;
        println!("{}", first_failure(&self.completions)?);
        Ok(Outcome::Refused)
    }

    /// Fills a send queue, fails its queue pair, and waits until nothing is left in it.
    pub(super) fn abandon(mut self) -> Result<()> {
        let src = [self.source.range(0, u32::try_from(PIECE_BYTES)?)?];
        let write = Write {
            src: &src,
            dst: self.region.at(0, PIECE_BYTES as u64)?,
            immediate: None,
            tag: 0,
            signalled: false,
        };
        let mut end = self.ends.remove(0);
        let posted = end.post(&[write; SEND_DEPTH as usize])?;
        let end = end.fail()?;
        let deadline = Instant::now() + PATIENCE;
        let mut flushed = 0;
        while end.outstanding() > 0 {
            for completion in wait::completions(&self.completions, deadline)? {
                if let Completion::Failed(error) = completion {
                    ensure!(error.status == WcStatus::WR_FLUSH_ERR, "{error}");
                    flushed += 1;
                }
            }
        }
        println!("{posted} posted, {flushed} flushed, none left");
        Ok(())
    }

    /// Writes one piece to a forbidden address.
    pub(super) fn expect_failure(&mut self, dst: RemoteAddr) -> Result<Outcome> {
        let error = write_one(&mut self.ends[0], &self.source, dst)
            .and_then(|()| first_failure(&self.completions))?;
        println!("{error}");
        Ok(Outcome::Refused)
    }

    /// Writes one piece after the other; prints events and the failure that ends it.
    pub(super) fn write_until_failure(&mut self, retry: Retry) -> Result<()> {
        let dst = self.region.at(0, PIECE_BYTES as u64)?;
        let mut written = 0_u32;
        loop {
            let begun = Instant::now();
            write_one(&mut self.ends[0], &self.source, dst)?;
            let deadline = begun + PATIENCE;
            match self.next_printing(deadline)? {
                None => {
                    written += 1;
                    if written == WARM_WRITES {
                        println!("writing");
                    }
                }
                Some(error) => {
                    let (waited, bound) = (begun.elapsed(), retry.gives_up_after());
                    println!("{error}");
                    println!("failed after {written} writes and {waited:.1?}; bound {bound:.1?}");
                    ensure!(waited < bound + STANDSTILL, "later than its bound");
                    return Ok(());
                }
            }
        }
    }

    /// Waits for the write, printing events: its error, or none if it arrived.
    fn next_printing(&self, deadline: Instant) -> Result<Option<WorkError>> {
        let file = self.completions.events_file().expect("made with events");
        let mut found = Vec::new();
        loop {
            self.completions.arm()?;
            self.completions.poll(&mut found, 16)?;
            match found.pop() {
                Some(Completion::Failed(error)) => return Ok(Some(error)),
                Some(Completion::Written { .. }) => return Ok(None),
                Some(Completion::Immediate { .. } | Completion::Stray { .. }) => {
                    bail!("unexpected write to this end");
                }
                None => {}
            }
            if !wait::readable(&[file, self.device.as_fd()], deadline)? {
                bail!("no completion before the deadline");
            }
            while let Some(event) = self.device.next_event()? {
                println!("event: {event:?}");
                ensure!(event != DeviceEvent::DeviceFatal, "the device is gone");
            }
            self.completions.take_events()?;
        }
    }
}

fn write_one(end: &mut QueuePair<Rts>, source: &MemoryRegion, dst: RemoteAddr) -> Result<()> {
    let src = [source.range(0, u32::try_from(PIECE_BYTES)?)?];
    let write = Write {
        src: &src,
        dst,
        immediate: None,
        tag: 1,
        signalled: true,
    };
    let taken = end.post(&[write])?;
    ensure!(taken == 1, "the send queue is full");
    Ok(())
}

fn first_failure(completions: &CompletionQueue) -> Result<WorkError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        for completion in wait::completions(completions, deadline)? {
            if let Completion::Failed(error) = completion {
                return Ok(error);
            }
        }
    }
}
