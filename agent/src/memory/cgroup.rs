//! Free memory under the control group's limit: version 2, or version 1's memory controller. Parent
//! groups may be tighter; the tightest limit applies.

use std::fs;
use std::path::{Path, PathBuf};

/// The file names of one version.
struct Version {
    limit: &'static str,
    used: &'static str,
    /// In `memory.stat`: file pages that the kernel reclaims first.
    reclaimable: &'static str,
}

const V2: Version = Version {
    limit: "memory.max",
    used: "memory.current",
    reclaimable: "inactive_file ",
};
const V1: Version = Version {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    reclaimable: "total_inactive_file ",
};

/// `None`: no group has a limit, or none is readable.
pub(super) fn free_bytes() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    free_below(Path::new("/sys/fs/cgroup"), &groups)
}

fn free_below(root: &Path, groups: &str) -> Option<u64> {
    let lines = groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        Some((fields.next()?, fields.next()?.trim_start_matches('/')))
    });
    let free = lines.filter_map(|(controllers, group)| {
        if controllers.is_empty() {
            tightest(root, root.join(group), &V2)
        } else if controllers.split(',').any(|name| name == "memory") {
            let root = root.join("memory");
            tightest(&root, root.join(group), &V1)
        } else {
            None
        }
    });
    free.min()
}

/// The minimum over the group and its parents. A container sees its own group as the root,
/// regardless of the path.
fn tightest(root: &Path, group: PathBuf, version: &Version) -> Option<u64> {
    let up = group
        .ancestors()
        .take_while(|group| group.starts_with(root));
    up.filter_map(|group| free_in(group, version)).min()
}

fn free_in(group: &Path, version: &Version) -> Option<u64> {
    let read = |name: &str| fs::read_to_string(group.join(name)).ok();
    // "max" does not parse: there is no limit.
    let limit: u64 = read(version.limit)?.trim().parse().ok()?;
    let used: u64 = read(version.used)?.trim().parse().ok()?;
    let reclaimable = read("memory.stat").and_then(|stat| {
        let line = stat
            .lines()
            .find_map(|line| line.strip_prefix(version.reclaimable));
        line?.trim().parse::<u64>().ok()
    });
    let used = used.saturating_sub(reclaimable.unwrap_or(0));
    Some(limit.saturating_sub(used))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(root: &Path, path: &str, files: &[(&str, &str)]) {
        fs::create_dir_all(root.join(path)).unwrap();
        for (name, text) in files {
            fs::write(root.join(path).join(name), text).unwrap();
        }
    }

    #[test]
    fn the_tightest_group_counts_and_page_cache_is_free() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        group(
            root,
            "pods/a",
            &[("memory.max", "max\n"), ("memory.current", "1\n")],
        );
        group(
            root,
            "pods",
            &[("memory.max", "1000\n"), ("memory.current", "700\n")],
        );
        group(
            root,
            "pods",
            &[("memory.stat", "anon 600\ninactive_file 100\n")],
        );
        assert_eq!(free_below(root, "0::/pods/a\n"), Some(400));
        assert_eq!(free_below(root, "0::/elsewhere\n"), None);
    }

    #[test]
    fn version_1_is_read_and_a_path_outside_the_own_view_is_its_root() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let files = [
            ("memory.limit_in_bytes", "500"),
            ("memory.usage_in_bytes", "200"),
        ];
        group(root, "memory", &files);
        let groups = "4:cpu,cpuacct:/x\n3:memory:/kubepods/pod1/c\n";
        assert_eq!(free_below(root, groups), Some(300));
    }
}
