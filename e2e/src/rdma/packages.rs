//! What the virtual hosts are made of: Debian's packages, fetched once into the cache and unpacked
//! there. Only the emulator, with its many dependencies, is installed on this machine.

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Modules of a host's kernel in the order in which they load.
pub const MODULES: [&str; 15] = [
    "virtio_ring",
    "virtio",
    "virtio_pci_modern_dev",
    "virtio_pci_legacy_dev",
    "virtio_pci",
    "failover",
    "net_failover",
    "virtio_net",
    "crc32_generic",
    "udp_tunnel",
    "ip6_udp_tunnel",
    "ib_core",
    "ib_uverbs",
    "rdma_rxe",
    // Packet loss and delay, for `tc`.
    "sch_netem",
];

/// Fetched and unpacked; the kernel is named by what depends on it.
const FETCHED: [&str; 6] = [
    "busybox-static",
    "ibverbs-providers",
    "libibverbs1",
    "libibverbs-dev",
    "libnl-3-200",
    "libnl-route-3-200",
];
/// Program and the package that has it.
const INSTALLED: [(&str, &str); 4] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("ip", "iproute2"),
    ("rdma", "iproute2"),
    ("tc", "iproute2"),
];

/// The unpacked packages.
#[derive(Clone, Debug)]
pub struct Packages {
    root: PathBuf,
}

// === impl Packages ===

impl Packages {
    /// Finds the packages under `cache`, and fetches them if they are not there: a minute the first
    /// time. A second caller waits for the first.
    ///
    /// # Errors
    /// Not Debian on x86-64, something cannot be fetched, or the emulator is missing and this process
    /// may not install it.
    pub fn ready(cache: &Path) -> Result<Self> {
        ensure!(
            cfg!(target_arch = "x86_64"),
            "the virtual hosts are x86-64, as Debian's amd64"
        );
        install_missing()?;
        let folder = cache.join("rdma");
        let root = folder.join("root");
        fs::create_dir_all(&folder).context("make the cache folder")?;
        let lock = File::create(folder.join("packages.lock")).context("make the packages' lock")?;
        flock(&lock, FlockOperation::LockExclusive).context("wait for the packages' lock")?;
        if !root.exists() {
            let partial = tempfile::tempdir_in(&folder).context("make a folder for packages")?;
            fetch(partial.path())?;
            let unpacked = partial.path().join("root");
            fs::rename(unpacked, &root).context("put the packages in place")?;
        }
        Ok(Self { root })
    }

    /// Where shared libraries lie.
    pub fn library_folder(&self) -> PathBuf {
        self.root.join("usr/lib/x86_64-linux-gnu")
    }

    pub fn busybox(&self) -> PathBuf {
        self.root.join("bin/busybox")
    }

    /// # Errors
    /// The kernel's package has none.
    pub fn kernel(&self) -> Result<PathBuf> {
        let is_kernel = |path: &Path| {
            let name = path.file_name().and_then(|n| n.to_str());
            name.is_some_and(|name| name.starts_with("vmlinuz-"))
        };
        find(&self.root.join("boot"), &is_kernel).context("there is no kernel in its package")
    }

    /// # Errors
    /// The kernel's package has no such module.
    pub fn module(&self, name: &str) -> Result<PathBuf> {
        let file = format!("{name}.ko");
        let is_module = |path: &Path| path.file_name().is_some_and(|n| n == file.as_str());
        find(&self.root.join("lib/modules"), &is_module)
            .with_context(|| format!("the kernel has no module {name}"))
    }
}

/// The first file below `folder` that `is_it`.
fn find(folder: &Path, is_it: &dyn Fn(&Path) -> bool) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?;
    let mut paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths.find_map(|path| {
        if path.is_dir() {
            find(&path, is_it)
        } else {
            is_it(&path).then_some(path)
        }
    })
}

/// A program's path, as root would find it.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

fn install_missing() -> Result<()> {
    let missing = INSTALLED.iter().filter(|(name, _)| program(name).is_none());
    let mut packages: Vec<&str> = missing.map(|&(_, package)| package).collect();
    packages.dedup();
    if packages.is_empty() {
        return Ok(());
    }
    let words = format!(
        "apt-get install -y --no-install-recommends {}",
        packages.join(" ")
    );
    ensure!(
        rustix::process::geteuid().is_root(),
        "missing here: {}; as root: {words}",
        packages.join(", ")
    );
    eprintln!("{words}");
    let mut install = Command::new("apt-get");
    install
        .args(["install", "-y", "--no-install-recommends"])
        .args(&packages);
    if run(&mut install).is_err() {
        run(Command::new("apt-get").arg("update"))?;
        run(&mut install)?;
    }
    Ok(())
}

/// Downloads into `folder` and unpacks into its `root`.
fn fetch(folder: &Path) -> Result<()> {
    let kernel = match kernel_package() {
        Ok(kernel) => kernel,
        Err(_) if rustix::process::geteuid().is_root() => {
            run(Command::new("apt-get").arg("update"))?;
            kernel_package()?
        }
        Err(error) => return Err(error),
    };
    eprintln!("fetching {kernel} and rdma-core for the virtual hosts, once (75 MB)");
    let mut download = Command::new("apt-get");
    download
        .args(["download", &kernel])
        .args(FETCHED)
        .current_dir(folder);
    run(&mut download)?;
    let root = folder.join("root");
    fs::create_dir(&root)?;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "deb") {
            unpack(&path, &root)?;
        }
    }
    Ok(())
}

/// The package of Debian's current kernel.
fn kernel_package() -> Result<String> {
    let output = run(Command::new("apt-cache").args(["depends", "linux-image-amd64"]))?;
    let depends = output
        .lines()
        .find_map(|line| line.trim().strip_prefix("Depends: "));
    let kernel = depends
        .context("apt knows no linux-image-amd64; is this Debian, and was `apt-get update` run?")?;
    Ok(kernel.to_owned())
}

/// Of a kernel only what is used: all of it is 400 MB.
fn unpack(package: &Path, root: &Path) -> Result<()> {
    let is_kernel = package
        .file_name()
        .is_some_and(|n| n.as_encoded_bytes().starts_with(b"linux-image"));
    if !is_kernel {
        run(Command::new("dpkg-deb").arg("-x").args([package, root]))?;
        return Ok(());
    }
    let tar = root.with_extension("tar");
    let mut pack = Command::new("dpkg-deb");
    pack.arg("--fsys-tarfile")
        .arg(package)
        .stdout(File::create(&tar)?);
    let packed = pack.status()?.success();
    ensure!(packed, "dpkg-deb cannot unpack {}", package.display());
    let mut unpack = Command::new("tar");
    unpack
        .arg("-xf")
        .arg(&tar)
        .arg("-C")
        .arg(root)
        .args(["--wildcards", "./boot/vmlinuz-*"]);
    unpack.args(MODULES.map(|name| format!("*/{name}.ko")));
    run(&mut unpack)?;
    Ok(fs::remove_file(tar)?)
}

/// Runs a command to its end; what it printed.
fn run(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("start {command:?}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!(
            "{command:?} ended with {}: {}",
            output.status,
            said.trim_end()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
