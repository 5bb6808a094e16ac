//! One virtual host: an emulator that boots a kernel and runs commands on it, several at a time.
//!
//! It is killed when dropped, and when the thread that started it ends.

mod shell;

use crate::rdma::packages::program;
use crate::rdma::qmp;
pub use shell::{Exit, Running};

use anyhow::{Context, Result, bail};
use serde_json::json;
use shell::Shell;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::{Child, Command};

/// From power to the first command; a busy machine takes several times its usual 5 s.
const BOOT_WITHIN: Duration = Duration::from_secs(120);
const MEMORY_MIB: u32 = 1024;
/// Without AVX2: for it the emulator uses the host's, and its own SSE code then waits some 100 ns at each change between
/// the two on processors that do not keep upper halves apart.
const PROCESSOR: &str = "max,avx2=off";
/// Gives RoCE its largest packets: 4096 bytes and their headers.
const NIC_MTU: u32 = 4200;

/// A NIC as the emulator shows it.
#[derive(Clone, Debug)]
pub struct Nic {
    /// Its socket on the [`crate::rdma::ethernet::Ethernet`].
    pub link: PathBuf,
    pub address: Ipv4Addr,
}

/// What a host is made of.
#[derive(Clone, Debug)]
pub struct Parts {
    pub name: String,
    pub kernel: PathBuf,
    pub initramfs: PathBuf,
    pub nics: Vec<Nic>,
}

/// A running host.
pub struct Machine {
    name: String,
    emulator: Child,
    shell: Shell,
    control: PathBuf,
}

// === impl Machine ===

impl Machine {
    /// Starts a host; its sockets and its kernel's console lie in `folder`.
    ///
    /// # Errors
    /// The emulator cannot be started.
    pub fn power_on(folder: &Path, parts: &Parts) -> Result<Self> {
        let name = parts.name.clone();
        let control = folder.join(format!("{name}.control"));
        let emulator = program("qemu-system-x86_64").context("there is no qemu-system-x86_64")?;
        // The emulator shall not outlive a test that is killed.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(emulator);
        command.args([
            "-machine",
            "q35,accel=tcg",
            "-cpu",
            PROCESSOR,
            "-m",
            &format!("{MEMORY_MIB}"),
        ]);
        command.args(["-nodefaults", "-display", "none", "-no-reboot"]);
        command
            .arg("-kernel")
            .arg(&parts.kernel)
            .arg("-initrd")
            .arg(&parts.initramfs);
        command.args(["-append", &command_line(parts)]);
        command
            .arg("-serial")
            .arg(format!("file:{}", console(folder, &name).display()));
        command.args([
            "-chardev",
            "stdio,id=shell,signal=off",
            "-serial",
            "chardev:shell",
        ]);
        command
            .arg("-qmp")
            .arg(format!("unix:{},server=on,wait=off", control.display()));
        for (nr, nic) in parts.nics.iter().enumerate() {
            command.args(nic_arguments(nr, nic));
        }
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        let mut emulator = command
            .kill_on_drop(true)
            .spawn()
            .context("start the emulator")?;
        let shell = Shell::new(&name, &mut emulator)?;
        Ok(Self {
            name,
            emulator,
            shell,
            control,
        })
    }

    /// Waits until it takes commands.
    ///
    /// # Errors
    /// It does not get there; the error carries the end of its kernel's console.
    pub async fn booted(&mut self, folder: &Path) -> Result<()> {
        let ready = tokio::time::timeout(BOOT_WITHIN, self.shell.ready()).await;
        if matches!(ready, Ok(Ok(()))) {
            return Ok(());
        }
        let said = std::fs::read_to_string(console(folder, &self.name)).unwrap_or_default();
        let lines: Vec<&str> = said.lines().rev().take(20).collect();
        let end = lines.into_iter().rev().collect::<Vec<_>>().join("\n");
        bail!(
            "{} is not up within {BOOT_WITHIN:?}; its console ends:\n{end}",
            self.name
        )
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Starts a command in the host's shell.
    ///
    /// # Errors
    /// The host is gone.
    pub async fn start(&mut self, command: &str) -> Result<Running> {
        self.shell.start(command).await
    }

    /// Runs a command to its end; what it printed.
    ///
    /// # Errors
    /// It fails, or takes longer than `limit`.
    pub async fn run(&mut self, command: &str, limit: Duration) -> Result<Vec<String>> {
        let exit = self.start(command).await?.exit(limit).await?;
        match exit.code {
            0 => Ok(exit.lines),
            code => bail!(
                "`{command}` on {} ended with {code}: {:?}",
                self.name,
                exit.lines
            ),
        }
    }

    /// Pulls or plugs the cable of a NIC; the host sees its carrier go or come.
    ///
    /// # Errors
    /// The emulator does not answer.
    pub async fn set_link(&self, nic: usize, up: bool) -> Result<()> {
        let arguments = json!({"name": nic_id(nic), "up": up});
        qmp::execute(&self.control, "set_link", arguments).await
    }

    /// Ends the host at once, as a power cut does.
    ///
    /// # Errors
    /// The emulator cannot be killed.
    pub async fn power_off(mut self) -> Result<()> {
        self.emulator
            .kill()
            .await
            .with_context(|| format!("kill {}", self.name))
    }
}

fn console(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.console"))
}

fn nic_id(nr: usize) -> String {
    format!("nic{nr}")
}

/// What `init.sh` reads.
fn command_line(parts: &Parts) -> String {
    let nics = parts.nics.iter().enumerate();
    let nics = nics.map(|(nr, nic)| format!(" nic=eth{nr}:{}", nic.address));
    let host = &parts.name;
    format!(
        "console=ttyS0 quiet panic=-1 host={host}{}",
        nics.collect::<String>()
    )
}

fn nic_arguments(nr: usize, nic: &Nic) -> [String; 4] {
    let id = nic_id(nr);
    let [_, b, c, d] = nic.address.octets();
    let link = nic.link.display();
    [
        "-netdev".to_owned(),
        format!("stream,id={id},server=off,addr.type=unix,addr.path={link}"),
        "-device".to_owned(),
        format!(
            "virtio-net-pci,id={id}-device,netdev={id},romfile=,host_mtu={NIC_MTU},\
             mac=52:54:00:{b:02x}:{c:02x}:{d:02x}"
        ),
    ]
}

#[cfg(test)]
mod tests;
