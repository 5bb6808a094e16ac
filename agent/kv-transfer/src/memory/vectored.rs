//! Reads and writes between a socket and registered memory: without a copy in between where the host
//! reaches it, by way of the host where only a device does.

use super::Region;
use crate::plan::Span;
use std::collections::VecDeque;
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
    /// A device's bytes that follow, copied out and not yet written.
    staged: VecDeque<u8>,
}

impl SpanCursor {
    pub(crate) fn new(spans: Vec<Span>) -> Self {
        let mut cursor = Self {
            spans,
            next: 0,
            within: 0,
            staged: VecDeque::new(),
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

    pub(crate) fn advance(&mut self, bytes: u64) {
        self.within += bytes;
        while let Some(span) = self.spans.get(self.next)
            && self.within >= span.len
        {
            self.within -= span.len;
            self.next += 1;
        }
    }

    /// Writes some of what is left; does not block on a non-blocking socket.
    pub(crate) fn write_some(
        &mut self,
        socket: BorrowedFd<'_>,
        regions: &[Region],
    ) -> io::Result<usize> {
        if self.is_on_device(regions) {
            return self.write_staged(socket, regions);
        }
        let parts = self.parts(regions, false)?;
        // SAFETY: every part was checked to lie within a region that `regions` keeps mapped, and
        // the kernel only reads from it.
        let written = unsafe { libc::writev(socket.as_raw_fd(), parts.as_ptr(), count(&parts)) };
        usize::try_from(written).map_err(|_| io::Error::last_os_error())
    }

    /// Reads some of what is left; does not block on a non-blocking socket.
    pub(crate) fn read_some(
        &self,
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
        match usize::try_from(read) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => Ok(read),
            Err(_) => Err(io::Error::last_os_error()),
        }
    }

    fn is_on_device(&self, regions: &[Region]) -> bool {
        let next = self.spans.get(self.next);
        next.is_some_and(|span| regions[span.region].as_device().is_some())
    }

    /// The device's spans that follow, (region, offset, length), of at most `bytes_max` together.
    fn device_parts(&self, regions: &[Region], bytes_max: usize) -> Vec<(usize, u64, usize)> {
        let mut parts = Vec::new();
        let (mut within, mut left) = (self.within, bytes_max);
        for span in &self.spans[self.next..] {
            if left == 0 || regions[span.region].as_device().is_none() {
                break;
            }
            let len = usize::try_from(span.len - within).map_or(left, |len| len.min(left));
            parts.push((span.region, span.offset + within, len));
            left -= len;
            within = 0;
        }
        parts
    }

    fn write_staged(&mut self, socket: BorrowedFd<'_>, regions: &[Region]) -> io::Result<usize> {
        if self.staged.is_empty() {
            let mut bytes = Vec::new();
            for (region, offset, len) in self.device_parts(regions, STAGE_BYTES) {
                let start = bytes.len();
                bytes.resize(start + len, 0);
                let read = regions[region].read(offset, &mut bytes[start..]);
                read.map_err(io::Error::other)?;
            }
            self.staged = bytes.into();
        }
        let written = rustix::io::write(socket, self.staged.as_slices().0)?;
        self.staged.drain(..written);
        Ok(written)
    }

    fn read_staged(&self, socket: BorrowedFd<'_>, regions: &[Region]) -> io::Result<usize> {
        let parts = self.device_parts(regions, STAGE_BYTES);
        let mut bytes = vec![0; parts.iter().map(|(.., len)| len).sum()];
        let read = rustix::io::read(socket, &mut bytes)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut rest = &bytes[..read];
        for (region, offset, len) in parts {
            let (part, after) = rest.split_at(len.min(rest.len()));
            if !part.is_empty() {
                let written = regions[region].write(offset, part);
                written.map_err(io::Error::other)?;
            }
            rest = after;
        }
        Ok(read)
    }

    fn parts(&self, regions: &[Region], writable: bool) -> io::Result<Vec<libc::iovec>> {
        let mut parts = Vec::with_capacity(PARTS_MAX.min(self.spans.len() - self.next));
        let mut bytes = 0;
        let mut within = self.within;
        for span in self.spans[self.next..].iter().take(PARTS_MAX) {
            let len = (span.len - within).min(CALL_BYTES_MAX - bytes);
            let size = usize::try_from(len).expect("a part fits memory");
            let region = &regions[span.region];
            if region.as_device().is_some() {
                break;
            }
            let place = if writable {
                region.at_writable(span.offset + within, size)
            } else {
                region.at(span.offset + within, size)
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

fn count(parts: &[libc::iovec]) -> libc::c_int {
    libc::c_int::try_from(parts.len()).expect("PARTS_MAX fits a C int")
}

#[cfg(test)]
mod tests;
