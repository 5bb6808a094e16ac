//! Virtual hosts on one Ethernet, with programs of ours on them.

use crate::rdma::ethernet::{Ethernet, Trouble};
use crate::rdma::initramfs::Initramfs;
use crate::rdma::libraries;
use crate::rdma::machine::{Machine, Nic, Parts};
use crate::rdma::packages::{MODULES, Packages, program};
use anyhow::{Context, Result};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// A command that only asks or sets something.
const SHORT: Duration = Duration::from_secs(30);
const INIT: &str = include_str!("init.sh");
/// Providers of libibverbs are looked for by name in this folder, and named by files in this other.
const PROVIDERS: &str = "/usr/lib/x86_64-linux-gnu/libibverbs";
const DRIVERS: &str = "/etc/libibverbs.d";

/// The hosts; all of it ends when dropped.
pub struct Bench {
    pub hosts: Vec<Machine>,
    ethernet: Ethernet,
    /// Their sockets and consoles; removed with the bench.
    _folder: TempDir,
}

/// The address of a host's NIC: hosts count from 0, NICs too.
pub fn address(host: usize, nic: usize) -> Ipv4Addr {
    let part = |n: usize| u8::try_from(n).expect("a small bench");
    Ipv4Addr::new(10, 9, part(nic), part(host + 1))
}

// === impl Bench ===

impl Bench {
    /// Boots hosts named `a`, `b` and so on, each with `nics` NICs, `programs` in its `/bin` and `files`.
    ///
    /// # Errors
    /// Something is missing on this machine, or a host does not come up.
    pub async fn boot(
        hosts: usize,
        nics: usize,
        programs: &[PathBuf],
        files: &[(String, Vec<u8>)],
    ) -> Result<Self> {
        let packages = Packages::ready(&crate::binaries::workspace().join(".cache"))?;
        let folder = tempfile::tempdir().context("make a folder for the hosts")?;
        let initramfs = folder.path().join("initramfs");
        std::fs::write(&initramfs, file_system(&packages, programs, files)?)?;
        let kernel = packages.kernel()?;
        let mut ethernet = Ethernet::new(folder.path());
        let mut machines = Vec::new();
        for host in 0..hosts {
            let name = char::from(b'a' + u8::try_from(host)?).to_string();
            let parts = Parts {
                nics: links(&mut ethernet, &name, host, nics)?,
                name,
                kernel: kernel.clone(),
                initramfs: initramfs.clone(),
            };
            machines.push(Machine::power_on(folder.path(), &parts)?);
        }
        for machine in &mut machines {
            machine.booted(folder.path()).await?;
        }
        Ok(Self {
            hosts: machines,
            ethernet,
            _folder: folder,
        })
    }

    /// Makes Soft-RoCE devices `rxe0` and so on, one on each NIC of each host.
    ///
    /// # Errors
    /// A host's kernel refuses.
    pub async fn add_rdma(&mut self, nics: usize) -> Result<()> {
        for host in &mut self.hosts {
            for nic in 0..nics {
                let add = format!("rdma link add rxe{nic} type rxe netdev eth{nic}");
                host.run(&add, SHORT).await?;
            }
        }
        Ok(())
    }

    /// Makes the link of a host's NIC faulty, or whole again.
    ///
    /// # Errors
    /// There is no such link.
    pub fn set_trouble(&self, host: usize, nic: usize, trouble: Trouble) -> Result<()> {
        let name = link_name(self.hosts[host].name(), nic);
        eprintln!("[ethernet] {name}: {trouble:?}");
        self.ethernet.set_trouble(&name, trouble)
    }
}

fn link_name(host: &str, nic: usize) -> String {
    format!("{host}-{nic}")
}

fn links(ethernet: &mut Ethernet, name: &str, host: usize, nics: usize) -> Result<Vec<Nic>> {
    let nic = |nic| {
        let link = ethernet.add_link(&link_name(name, nic))?;
        let address = address(host, nic);
        Ok(Nic { link, address })
    };
    (0..nics).map(nic).collect()
}

/// The hosts' file system, one for all.
fn file_system(
    packages: &Packages,
    programs: &[PathBuf],
    files: &[(String, Vec<u8>)],
) -> Result<Vec<u8>> {
    let mut archive = Initramfs::default();
    for (place, bytes) in files {
        archive.add(place, 0o644, bytes);
    }
    archive.add("/init", 0o755, INIT.as_bytes());
    archive.add_file("/bin/busybox", &packages.busybox())?;
    for module in MODULES {
        archive.add_file(&format!("/modules/{module}.ko"), &packages.module(module)?)?;
    }
    archive.add("/modules/order", 0o644, MODULES.join("\n").as_bytes());
    let folder = packages.library_folder();
    let verbs = folder.join("libibverbs.so.1");
    let provider = folder.join("libibverbs/librxe-rdmav34.so");
    archive.add(&format!("{DRIVERS}/rxe.driver"), 0o644, b"driver rxe\n");
    archive.add_file(&format!("{PROVIDERS}/librxe-rdmav34.so"), &provider)?;
    archive.add_file("/usr/lib/x86_64-linux-gnu/libibverbs.so.1", &verbs)?;
    add_libraries(&mut archive, &[verbs, provider], &folder)?;
    let tools = ["ip", "rdma", "tc"].map(|name| program(name).context("iproute2 is installed"));
    let tools = tools.into_iter().collect::<Result<Vec<_>>>()?;
    for path in tools.iter().chain(programs) {
        let name = path
            .file_name()
            .and_then(|n| n.to_str())
            .context("a program has a name")?;
        archive.add_file(&format!("/bin/{name}"), path)?;
        add_libraries(&mut archive, std::slice::from_ref(path), &folder)?;
    }
    Ok(archive.finish())
}

/// Puts libraries where a dynamic linker looks by default: its own place, and one folder.
fn add_libraries(archive: &mut Initramfs, users: &[PathBuf], folder: &Path) -> Result<()> {
    for user in users {
        for library in libraries::of(user, folder)? {
            let name = library
                .file_name()
                .and_then(|n| n.to_str())
                .context("a library has a name")?;
            let place = if name.starts_with("ld-linux") {
                format!("/lib64/{name}")
            } else {
                format!("/usr/lib/x86_64-linux-gnu/{name}")
            };
            archive.add_file(&place, &library)?;
        }
    }
    Ok(())
}
