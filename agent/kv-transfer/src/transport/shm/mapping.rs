//! Decode maps a prefill's memory for reading.

use super::export::FILES_MAX;
use super::lease::TABLE_BYTES;
use super::socket::{self, ConnectError};
use crate::memory::{Region, RegionError, device_of};
use pd_protocol::control::ShmOffer;
use pd_protocol::layout::KvLayout;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;
use tokio::io::Interest;

const TIMEOUT: Duration = Duration::from_secs(2);

/// A prefill's regions, numbered as in plans, and its lease table.
#[derive(Debug)]
pub(crate) struct ShmMapping {
    pub(crate) regions: Vec<Region>,
    pub(crate) leases: Region,
}

/// Why memory cannot be shared; with `auto` the transfer goes over tcp instead.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MapError {
    #[error("prefill runs on another host")]
    OtherHost,
    #[error("the peer handed over {actual} files, but its layout has {expected} regions")]
    FileCount { actual: usize, expected: usize },
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("cannot get the files behind prefill's memory: {0}")]
    Socket(#[from] io::Error),
    #[error(transparent)]
    Region(#[from] RegionError),
}

impl ShmMapping {
    /// `own` are the regions that will be copied to, `dir` is where sockets are that other namespaces see.
    pub(crate) async fn open(
        offer: &ShmOffer,
        layout: &KvLayout,
        own: &[Region],
        dir: Option<&Path>,
    ) -> Result<Self, MapError> {
        if offer.host_id != super::host_id() {
            return Err(MapError::OtherHost);
        }
        let files = tokio::time::timeout(TIMEOUT, receive_files(offer, dir)).await;
        let timed_out = |_| Err(io::Error::from(io::ErrorKind::TimedOut).into());
        let mut files = files.unwrap_or_else(timed_out)?;
        let mut lens = layout.region_lens();
        lens.push(TABLE_BYTES as u64);
        if files.len() != lens.len() {
            return Err(MapError::FileCount {
                actual: files.len(),
                expected: lens.len(),
            });
        }
        let to_usize = |len| usize::try_from(len).expect("a mapped region fits memory");
        let leases = files.pop().expect("the lease table is the last");
        let leases = Region::map_read_only(leases, TABLE_BYTES)?;
        // The rows are host memory on both sides, also where pages are a device's.
        let device = device_of(own);
        let rows = lens.len() - 2;
        let open = |(index, (file, len)): (usize, (OwnedFd, u64))| {
            let own = device.filter(|_| index != rows);
            Region::open_shared(file, to_usize(len), own)
        };
        let regions = files.into_iter().zip(lens).enumerate().map(open);
        Ok(Self {
            regions: regions.collect::<Result<_, _>>()?,
            leases,
        })
    }
}

async fn receive_files(offer: &ShmOffer, dir: Option<&Path>) -> Result<Vec<OwnedFd>, MapError> {
    let stream = socket::connect(offer, dir).await?;
    loop {
        stream.readable().await?;
        match stream.try_io(Interest::READABLE, || receive_message(&stream)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            received => return Ok(received?),
        }
    }
}

fn receive_message(stream: &tokio::net::UnixStream) -> io::Result<Vec<OwnedFd>> {
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut count = [0];
    let mut parts = [IoSliceMut::new(&mut count)];
    let message = rustix::net::recvmsg(stream, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    if message.bytes == 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "prefill hands its memory to processes of its own user only",
        ));
    }
    let mut files = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            files.extend(received);
        }
    }
    Ok(files)
}
