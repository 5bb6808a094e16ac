//! How much of the host's memory the KV pool may take where no number of tokens is given. The
//! control group's limit bounds the free memory, as in a pod. The pool is mapped, and takes memory
//! page by page as requests use it.

mod cgroup;

use anyhow::{Context, Result, ensure};
use std::path::Path;

/// Share of what the weights leave free, without `--mem-fraction-static`: a prefill, a decode and a
/// unified process for comparison fit on one machine.
const KV_SHARE_DEFAULT: f64 = 0.25;
/// Bounds of the default. Below the lower one a conversation hardly fits; beyond the upper one the
/// memory is more often meant for something else, and a NIC that registers the pool pins all of it.
const KV_BYTES_MIN: u64 = 64 << 20;
const KV_BYTES_MAX: u64 = 16 << 30;

/// Bytes for the KV pool: the fraction of the free memory minus the model's files, or the default
/// share of the rest.
///
/// # Errors
/// When the model's files alone need more than the fraction.
pub(crate) fn kv_memory_bytes(model_path: &Path, fraction: Option<f64>) -> Result<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").context("cannot read /proc/meminfo")?;
    let available = available_bytes(&meminfo).context("/proc/meminfo has no MemAvailable")?;
    let available = available.min(cgroup::free_bytes().unwrap_or(u64::MAX));
    let weights = weight_bytes(model_path);
    let Some(fraction) = fraction else {
        return Ok(default_bytes(available, weights));
    };
    let allowed = share(available, fraction);
    ensure!(
        allowed > weights,
        "--mem-fraction-static {fraction} of {available} free bytes is less than the model's \
         {weights} bytes; raise it or free memory"
    );
    Ok(allowed - weights)
}

fn default_bytes(available: u64, weights: u64) -> u64 {
    let left = available.saturating_sub(weights);
    share(left, KV_SHARE_DEFAULT).clamp(KV_BYTES_MIN, KV_BYTES_MAX)
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a share of memory may be rounded, and a fraction below 1 does not overflow"
)]
fn share(bytes: u64, fraction: f64) -> u64 {
    (bytes as f64 * fraction) as u64
}

fn available_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}

/// Size of a GGUF file, or of the safetensors of a directory. Unreadable ones count as 0: the
/// loader reports them better.
fn weight_bytes(model_path: &Path) -> u64 {
    let size = |path: &Path| std::fs::metadata(path).map_or(0, |meta| meta.len());
    let Ok(entries) = std::fs::read_dir(model_path) else {
        return size(model_path);
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let weights = paths.filter(|path| path.extension().is_some_and(|e| e == "safetensors"));
    weights.map(|path| size(&path)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_memory_is_read_from_its_line() {
        let meminfo = "MemTotal:       16 kB\nMemFree: 1 kB\nMemAvailable:    8 kB\n";
        assert_eq!(available_bytes(meminfo), Some(8192));
        assert_eq!(available_bytes("MemTotal: 16 kB\n"), None);
    }

    #[test]
    fn the_default_is_a_quarter_of_what_weights_leave_within_bounds() {
        assert_eq!(default_bytes(12 << 30, 4 << 30), 2 << 30);
        assert_eq!(default_bytes(1 << 30, 4 << 30), KV_BYTES_MIN);
        assert_eq!(default_bytes(1 << 40, 4 << 30), KV_BYTES_MAX);
    }
}
