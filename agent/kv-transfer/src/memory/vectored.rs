//! Reads and writes between a socket and registered memory: without a copy in between where the host
//! reaches it, by way of the host where only a device does.

use super::{Region, RegionError};
use crate::plan::Span;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Parts of one call, and bytes of one call: a guard is held over it, so it must end soon.
const PARTS_MAX: usize = 256;
const CALL_BYTES_MAX: u64 = 4 << 20;
/// Bytes of a device's memory on their way through the host.
const STAGE_BYTES: usize = 1 << 20;

/// Position in a list of spans.
#[derive(Debug)]
pub(crate) struct SpanCursor {
    spans: Vec<Span>,
    /// Spans before it are done, and `within` bytes of it.
    next: usize,
    within: u64,
    /// A device's bytes on their way; of those that leave, the ones before `staged_done` have left.
    staged: Vec<u8>,
    staged_done: usize,
}

impl SpanCursor {
    pub(crate) fn new(spans: Vec<Span>) -> Self {
        let mut cursor = Self {
            spans,
            next: 0,
            within: 0,
            staged: Vec::new(),
            staged_done: 0,
        };
        cursor.advance(0);
        cursor
    }

    pub(crate) fn is_done(&self) -> bool {
        self.next == self.spans.len()
    }

    pub(crate) fn left(&self) -> u64 {
        let left: u64 = self.spans[self.next..].iter().map(|span| span.len).sum();
        left - self.within
    }

    /// What is left, and how much of its first span is done.
    fn rest(&self) -> (&[Span], u64) {
        (&self.spans[self.next..], self.within)
    }

    /// Goes on by `bytes` that were dropped.
    pub(crate) fn skip(&mut self, bytes: usize) {
        self.advance(bytes as u64);
    }

    fn advance(&mut self, bytes: u64) {
        self.within += bytes;
        while let Some(span) = self.spans.get(self.next)
            && self.within >= span.len
        {
            self.within -= span.len;
            self.next += 1;
        }
    }

    /// Writes some of what is left, and goes on by as much; does not block on a non-blocking socket.
    ///
    /// # Errors
    /// The socket's, or [`of_memory`].
    pub(crate) fn write_some(
        &mut self,
        socket: BorrowedFd<'_>,
        regions: &[Region],
    ) -> io::Result<usize> {
        let written = if self.is_on_device(regions) {
            self.write_staged(socket, regions)?
        } else {
            let parts = self.parts(regions, false)?;
            // SAFETY: every part was checked to lie within a region that `regions` keeps mapped, and
            // the kernel only reads from it.
            let written =
                unsafe { libc::writev(socket.as_raw_fd(), parts.as_ptr(), count(&parts)) };
            usize::try_from(written).map_err(|_| io::Error::last_os_error())?
        };
        self.advance(written as u64);
        Ok(written)
    }

    /// Whether one call can write all that is left: it is the host's, and bounded.
    pub(crate) fn fits_one_call(&self, regions: &[Region]) -> bool {
        let spans = &self.spans[self.next..];
        let is_host = |span: &Span| regions[span.region].as_host().is_some();
        spans.len() <= PARTS_MAX && self.left() <= CALL_BYTES_MAX && spans.iter().all(is_host)
    }

    /// Writes all that is left and `end` behind it, as far as the socket takes them, and goes on by as much; true if they
    /// have left. Only where it fits one call.
    ///
    /// # Errors
    /// The socket's, or [`of_memory`].
    pub(crate) fn write_with_end(
        &mut self,
        socket: BorrowedFd<'_>,
        regions: &[Region],
        end: &[u8],
    ) -> io::Result<bool> {
        let mut parts = self.parts(regions, false)?;
        parts.push(libc::iovec {
            iov_base: end.as_ptr().cast_mut().cast(),
            iov_len: end.len(),
        });
        // SAFETY: every part but the last was checked to lie within a region that `regions` keeps mapped, the last is a
        // slice that outlives the call, and the kernel only reads from all of them.
        let written = unsafe { libc::writev(socket.as_raw_fd(), parts.as_ptr(), count(&parts)) };
        let written = usize::try_from(written).map_err(|_| io::Error::last_os_error())? as u64;
        let left = self.left();
        self.advance(written.min(left));
        Ok(written == left + end.len() as u64)
    }

    /// Reads some of what is left, and goes on by what has left the socket, even where memory did not take
    /// it; does not block on a non-blocking socket.
    ///
    /// # Errors
    /// The socket's, also that it is closed, or [`of_memory`].
    pub(crate) fn read_some(
        &mut self,
        socket: BorrowedFd<'_>,
        regions: &[Region],
    ) -> io::Result<usize> {
        if self.is_on_device(regions) {
            return self.read_staged(socket, regions);
        }
        let parts = self.parts(regions, true)?;
        // SAFETY: every part was checked to lie within a writable region that `regions` keeps
        // mapped; no reference to its bytes exists.
        let read = unsafe { libc::readv(socket.as_raw_fd(), parts.as_ptr(), count(&parts)) };
        let read = usize::try_from(read).map_err(|_| io::Error::last_os_error())?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.advance(read as u64);
        Ok(read)
    }

    /// Copies out some of what is left, and goes on by as much; `bytes` is not empty.
    ///
    /// # Errors
    /// The memory's.
    pub(crate) fn copy_out(
        &mut self,
        bytes: &mut [u8],
        regions: &[Region],
    ) -> Result<usize, RegionError> {
        let mut done = 0;
        for (region, offset, len) in ranges(self.rest(), bytes.len(), regions) {
            region.read(offset, &mut bytes[done..done + len])?;
            done += len;
        }
        self.advance(done as u64);
        Ok(done)
    }

    /// Copies in `bytes`, no more than is left, and goes on by as much, even where memory did not take it.
    ///
    /// # Errors
    /// The memory's.
    pub(crate) fn copy_in(&mut self, bytes: &[u8], regions: &[Region]) -> Result<(), RegionError> {
        let landed = land(bytes, ranges(self.rest(), bytes.len(), regions));
        self.advance(bytes.len() as u64);
        landed
    }

    fn is_on_device(&self, regions: &[Region]) -> bool {
        let next = self.spans.get(self.next);
        next.is_some_and(|span| regions[span.region].as_device().is_some())
    }

    fn write_staged(&mut self, socket: BorrowedFd<'_>, regions: &[Region]) -> io::Result<usize> {
        if self.staged_done == self.staged.len() {
            self.stage(regions)?;
        }
        let written = rustix::io::write(socket, &self.staged[self.staged_done..])?;
        self.staged_done += written;
        Ok(written)
    }

    /// Copies out what follows.
    fn stage(&mut self, regions: &[Region]) -> io::Result<()> {
        self.staged.clear();
        self.staged_done = 0;
        for (region, offset, len) in device_ranges((&self.spans[self.next..], self.within), regions)
        {
            let start = self.staged.len();
            self.staged.resize(start + len, 0);
            let read = region.read(offset, &mut self.staged[start..]);
            read.map_err(io::Error::other)?;
        }
        Ok(())
    }

    fn read_staged(&mut self, socket: BorrowedFd<'_>, regions: &[Region]) -> io::Result<usize> {
        let len = device_ranges(self.rest(), regions)
            .map(|(.., len)| len)
            .sum();
        self.staged.resize(len, 0);
        let read = rustix::io::read(socket, &mut self.staged)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let landed = land(&self.staged[..read], device_ranges(self.rest(), regions));
        self.advance(read as u64);
        landed.map(|()| read).map_err(io::Error::other)
    }

    fn parts(&self, regions: &[Region], writable: bool) -> io::Result<Vec<libc::iovec>> {
        let mut parts = Vec::with_capacity(PARTS_MAX.min(self.spans.len() - self.next));
        let mut bytes = 0;
        let mut within = self.within;
        for span in self.spans[self.next..].iter().take(PARTS_MAX) {
            let len = (span.len - within).min(CALL_BYTES_MAX - bytes);
            let size = usize::try_from(len).expect("a part fits memory");
            let Some(host) = regions[span.region].as_host() else {
                break;
            };
            let place = if writable {
                host.at_writable(span.offset + within, size)
            } else {
                host.at(span.offset + within, size)
            };
            parts.push(libc::iovec {
                iov_base: place.map_err(io::Error::other)?.cast(),
                iov_len: size,
            });
            bytes += len;
            within = 0;
            if bytes == CALL_BYTES_MAX {
                break;
            }
        }
        Ok(parts)
    }
}

/// What comes next of `spans`, of whose first `within` bytes are done: (region, offset, length), at most `bytes` together.
fn ranges<'a>(
    (spans, mut within): (&'a [Span], u64),
    bytes: usize,
    regions: &'a [Region],
) -> impl Iterator<Item = (&'a Region, u64, usize)> {
    let mut left = bytes;
    spans.iter().map_while(move |span| {
        if left == 0 {
            return None;
        }
        let len = usize::try_from(span.len - within).map_or(left, |len| len.min(left));
        let range = (&regions[span.region], span.offset + within, len);
        left -= len;
        within = 0;
        Some(range)
    })
}

/// The device's before the next of the host's, at most `STAGE_BYTES` together.
fn device_ranges<'a>(
    rest: (&'a [Span], u64),
    regions: &'a [Region],
) -> impl Iterator<Item = (&'a Region, u64, usize)> {
    let ranges = ranges(rest, STAGE_BYTES, regions);
    ranges.take_while(|(region, ..)| region.as_device().is_some())
}

fn land<'a>(
    mut bytes: &[u8],
    parts: impl Iterator<Item = (&'a Region, u64, usize)>,
) -> Result<(), RegionError> {
    for (region, offset, len) in parts {
        let (part, rest) = bytes.split_at(len.min(bytes.len()));
        region.write(offset, part)?;
        bytes = rest;
        if bytes.is_empty() {
            break;
        }
    }
    Ok(())
}

/// Where it was not the socket that failed.
pub(crate) fn of_memory(error: &io::Error) -> Option<&RegionError> {
    error.get_ref()?.downcast_ref()
}

fn count(parts: &[libc::iovec]) -> libc::c_int {
    libc::c_int::try_from(parts.len()).expect("PARTS_MAX fits a C int")
}

#[cfg(test)]
mod tests;
