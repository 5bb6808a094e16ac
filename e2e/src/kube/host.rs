//! What this machine must have, and what to do where it does not.

use crate::kube::versions::GO_MIN;
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

#[cfg(test)]
mod tests;

/// A program that a node needs, and the Debian package that has it.
const NODE_PROGRAMS: &[(&str, &str)] = &[
    ("containerd", "containerd"),
    ("ctr", "containerd"),
    ("containerd-shim-runc-v2", "containerd"),
    ("runc", "runc"),
    ("iptables", "iptables"),
    ("ip", "iproute2"),
    ("nsenter", "util-linux"),
    ("unshare", "util-linux"),
    ("gcc", "gcc libc6-dev"),
];
/// Network plugins that a node's pods are connected with.
const CNI_PLUGINS: &[&str] = &["ptp", "host-local", "portmap", "loopback"];
const CNI_PACKAGE: &str = "containernetworking-plugins";
/// Where distributions put the network plugins.
const CNI_FOLDERS: &[&str] = &["/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"];

/// # Errors
/// When there is no Go, or one that is too old; the error says how to get one.
pub fn check_go() -> Result<()> {
    let output = Command::new("go").args(["env", "GOVERSION"]).output();
    let version = output.map_or_else(
        |_| String::new(),
        |o| String::from_utf8_lossy(&o.stdout).into(),
    );
    check_go_version(version.trim())
}

/// `version` is what `go env GOVERSION` prints.
fn check_go_version(version: &str) -> Result<()> {
    let (major, minor) = GO_MIN;
    let found = match parse_go_version(version) {
        Some(version) if version >= GO_MIN => return Ok(()),
        Some(_) => format!("{version} is too old"),
        None => "there is no `go` on the PATH".to_owned(),
    };
    bail!(
        "{found}: Kubernetes is built from its Go modules, which need Go {major}.{minor}; install it from \
         https://go.dev/dl (a Go of 1.21 or later fetches it itself with GOTOOLCHAIN=go{major}.{minor}.0)"
    )
}

fn parse_go_version(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.strip_prefix("go")?.split(['.', ' ', '-']);
    let major = parts.next()?.parse().ok()?;
    let minor: String = parts
        .next()?
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    Some((major, minor.parse().ok()?))
}

/// # Errors
/// When this is not root or programs are missing; the error names every one and the line that installs
/// them.
pub fn check_node() -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!(
            "nodes need root, for namespaces and cgroups; run as root, or start the control plane alone \
             (`pd-kube up --control-plane-only`)"
        );
    }
    let mut missing: Vec<(&str, &str)> = NODE_PROGRAMS
        .iter()
        .copied()
        .filter(|(program, _)| on_path(program).is_none())
        .collect();
    if cni_folder().is_none() {
        missing.push(("the CNI plugins", CNI_PACKAGE));
    }
    match missing_programs(&missing) {
        None => Ok(()),
        Some(message) => bail!(message),
    }
}

/// # Errors
/// When there is no `ipset`, with which network policies are kept.
pub fn check_policies() -> Result<()> {
    if on_path("ipset").is_some() {
        return Ok(());
    }
    let message = missing_programs(&[("ipset", "ipset")]);
    bail!(message.expect("one is missing"))
}

fn missing_programs(missing: &[(&str, &str)]) -> Option<String> {
    if missing.is_empty() {
        return None;
    }
    let programs: Vec<&str> = missing.iter().map(|(program, _)| *program).collect();
    let mut packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
    packages.dedup();
    Some(format!(
        "nodes need {}; on Debian: apt-get install --no-install-recommends {}",
        programs.join(", "),
        packages.join(" ")
    ))
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|candidate| candidate.is_file())
}

/// The folder that holds every plugin that nodes use.
pub fn cni_folder() -> Option<&'static Path> {
    CNI_FOLDERS
        .iter()
        .map(Path::new)
        .find(|folder| CNI_PLUGINS.iter().all(|p| folder.join(p).is_file()))
}
