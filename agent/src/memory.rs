//! How much memory the KV pool may take where no number of tokens is given.

use anyhow::{Context, Result, ensure};
use std::path::Path;

/// Without `--mem-fraction-static`: as much, if a quarter of the free memory holds it.
const KV_BYTES_DEFAULT: u64 = 1 << 30;

/// Bytes for the KV pool: the fraction of the free memory that the model's files leave, or a
/// modest default.
///
/// # Errors
/// When the model's files alone need more than the fraction.
pub(crate) fn kv_memory_bytes(model_path: &Path, fraction: Option<f64>) -> Result<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").context("cannot read /proc/meminfo")?;
    let available = available_bytes(&meminfo).context("/proc/meminfo has no MemAvailable")?;
    let Some(fraction) = fraction else {
        return Ok(KV_BYTES_DEFAULT.min(available / 4));
    };
    let allowed = share(available, fraction);
    let weights = weight_bytes(model_path);
    ensure!(
        allowed > weights,
        "--mem-fraction-static {fraction} of {available} free bytes is less than the model's \
         {weights} bytes; raise it or free memory"
    );
    Ok(allowed - weights)
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a share of memory needs no exactness, and a fraction below 1 does not overflow"
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

/// Size of a GGUF file, or of the safetensors of a directory. Unreadable ones count nothing: the
/// loader says better what is wrong.
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
    use super::available_bytes;

    #[test]
    fn free_memory_is_read_from_its_line() {
        let meminfo = "MemTotal:       16 kB\nMemFree: 1 kB\nMemAvailable:    8 kB\n";
        assert_eq!(available_bytes(meminfo), Some(8192));
        assert_eq!(available_bytes("MemTotal: 16 kB\n"), None);
    }
}
