//! Prefill hands the files behind its memory to decode processes of the same user on the same host,
//! opened for reading only. They travel as descriptors, so neither process needs to see the other's.

use super::socket::{DirError, Listening};
use crate::memory::Region;
use crate::memory::device::handle_file;
use crate::tasks::Tasks;
use pd_protocol::control::{SessionId, ShmOffer};
use rustix::fs::{Mode, OFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::UnixStream;

/// Files that fit one message. Source: SCM_MAX_FD in unix(7).
pub(crate) const FILES_MAX: usize = 253;

/// Why memory is not offered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExportError {
    #[error(transparent)]
    Dir(#[from] DirError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Starts to hand out `regions` of a rank, within the caller's runtime: at a socket in `dir`, or at an abstract one.
///
/// # Errors
/// The system refuses, or the directory.
pub(crate) fn serve(
    tasks: &Tasks,
    rank: &SessionId,
    dir: Option<&Path>,
    regions: &[Region],
) -> Result<ShmOffer, ExportError> {
    if regions.len() > FILES_MAX {
        let why = format!(
            "{} regions, but one message carries {FILES_MAX} files",
            regions.len()
        );
        return Err(io::Error::other(why).into());
    }
    let files: io::Result<Vec<OwnedFd>> = regions.iter().map(file_of).collect();
    let files = files?;
    let listening = match dir {
        None => Listening::in_namespace(rank)?,
        Some(dir) => Listening::in_dir(dir)?,
    };
    let Listening {
        listener,
        offer,
        file,
    } = listening;
    listener.set_nonblocking(true)?;
    let listener = tokio::net::UnixListener::from_std(listener)?;
    tasks.spawn_endless("shm", async move {
        let _file = file;
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                // Out of file descriptors: others close in time.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            match hand_over(&stream, &files).await {
                Ok(()) => {}
                // A probe that only checks for a listener.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                Err(error) => tracing::warn!(%error, "could not hand over memory"),
            }
        }
    });
    Ok(offer)
}

/// The region's file, opened again for reading only; for a device region, the file of its handle.
fn file_of(region: &Region) -> io::Result<OwnedFd> {
    if let Some(device) = region.as_device() {
        return handle_file(device);
    }
    let host = region.as_host().expect("what is no device's is the host's");
    let file = host.file().ok_or_else(|| {
        io::Error::other("memory of this process alone cannot be handed to another; it is made so for other transports")
    })?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

async fn hand_over(stream: &UnixStream, files: &[OwnedFd]) -> io::Result<()> {
    let peer = stream.peer_cred()?.uid();
    let own = rustix::process::geteuid().as_raw();
    if peer != own {
        let why = format!("the peer is user {peer}, this process is user {own}");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    stream.writable().await?;
    stream.try_io(Interest::WRITABLE, || {
        let files: Vec<BorrowedFd<'_>> = files.iter().map(AsFd::as_fd).collect();
        let message = SendAncillaryMessage::ScmRights(&files);
        let mut space = vec![MaybeUninit::uninit(); message.size()];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(message);
        let count = u8::try_from(files.len()).expect("FILES_MAX fits a byte");
        rustix::net::sendmsg(
            stream,
            &[IoSlice::new(&[count])],
            &mut control,
            SendFlags::NOSIGNAL,
        )?;
        Ok(())
    })
}
