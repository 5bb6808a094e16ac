//! The kernel's description of devices in `/sys/class/infiniband`, in a folder of this process.
//!
//! Devices come and go under the fabric's lock; the folder is removed with the last one.

use std::fs;
use std::io;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The folder of all devices.
pub(super) fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| create().expect("the folder of temporary files can be written"))
}

/// A new folder: a former process of the same number may have left one behind.
fn create() -> io::Result<PathBuf> {
    let id = std::process::id();
    let mut count = 0;
    loop {
        let path = std::env::temp_dir().join(format!("pd-verbs-loopback-{id}-{count}"));
        match fs::create_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => count += 1,
            done => return done.map(|()| path),
        }
    }
}

/// Adds a device of one port with one GID, of RoCE v2.
pub(super) fn add(device: &str, gid: [u8; 16]) -> io::Result<()> {
    let port = folder().join(device).join("ports/1");
    for table in ["gids", "gid_attrs/types"] {
        fs::create_dir_all(port.join(table))?;
    }
    fs::write(port.join("gids/0"), format!("{}\n", Ipv6Addr::from(gid)))?;
    fs::write(port.join("gid_attrs/types/0"), "RoCE v2\n")?;
    fs::write(port.join("rate"), "400 Gb/sec (4X NDR)\n")
}

pub(super) fn set_numa_node(device: &str, node: u32) -> io::Result<()> {
    let hardware = folder().join(device).join("device");
    fs::create_dir_all(&hardware)?;
    fs::write(hardware.join("numa_node"), format!("{node}\n"))
}

/// Removes a device, and with the last one the folder. What cannot be removed is left to the
/// system's cleanup of temporary files.
pub(super) fn remove(device: &str) {
    // It may be gone already, and others may be left.
    let _ = fs::remove_dir_all(folder().join(device));
    let _ = fs::remove_dir(folder());
}
