//! What a cluster may not leave on this machine: processes, mounts, network namespaces, links, cgroups,
//! kernel settings, files.

use pd_e2e::kube::tools;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Kernel settings that a kubelet or a kube-proxy would change.
const SETTINGS: &[&str] = &[
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "net/ipv4/ip_forward",
    "net/ipv4/conf/all/route_localnet",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
];
/// Programs of a cluster, by the names that the kernel cuts to 15 bytes.
const PROGRAMS: &[&str] = &[
    "etcd",
    "kube-apiserver",
    "kube-controller",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "containerd",
    "containerd-shim",
    "pause",
    "pd-kube",
];
/// Folders that a cluster's programs would write to.
const FOLDERS: &[&str] = &[
    "/etc/cni",
    "/opt/cni",
    "/opt/containerd",
    "/run",
    "/run/netns",
    "/var/lib",
    "/var/log",
    "/var/run/kubernetes",
];

/// Everything of the kinds above, a line each.
pub(crate) fn snapshot() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    found.extend(programs());
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts are listed");
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    found.extend(points.map(|point| format!("mount {point}")));
    for (what, words) in [
        ("link", ["-brief", "link", "show"].as_slice()),
        ("route", &["route", "show", "table", "all"]),
    ] {
        let output = Command::new("ip")
            .args(words)
            .output()
            .expect("ip is there");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        found.extend(text.lines().map(|line| format!("{what} {line}")));
    }
    for folder in FOLDERS {
        found.extend(names(Path::new(folder)).map(|name| format!("file {folder}/{name}")));
    }
    for tree in names(Path::new("/sys/fs/cgroup")) {
        let folder = Path::new("/sys/fs/cgroup").join(&tree);
        let ours = names(&folder).filter(|name| name.contains("pdserve"));
        found.extend(ours.map(|name| format!("cgroup {tree}/{name}")));
    }
    for setting in SETTINGS {
        let value =
            fs::read_to_string(format!("/proc/sys/{setting}")).expect("the setting is there");
        found.insert(format!("setting {setting} = {}", value.trim()));
    }
    let temporary = names(&std::env::temp_dir()).filter(|name| name.starts_with("pdserve-kube-"));
    found.extend(temporary.map(|name| format!("temporary folder {name}")));
    let ledger = names(&tools::cache().join("kube/clusters"));
    found.extend(ledger.map(|name| format!("ledger {name}")));
    found
}

/// Running programs of clusters. Ended ones that their parent has not collected do not count.
fn programs() -> impl Iterator<Item = String> {
    let pids = names(Path::new("/proc")).filter(|name| name.bytes().all(|b| b.is_ascii_digit()));
    pids.filter_map(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (head, tail) = stat.rsplit_once(')')?;
        let name = head.split_once('(')?.1;
        let runs = !tail.trim_start().starts_with('Z');
        (runs && PROGRAMS.contains(&name)).then(|| format!("process {pid} {name}"))
    })
}

fn names(folder: &Path) -> impl Iterator<Item = String> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok())
}
