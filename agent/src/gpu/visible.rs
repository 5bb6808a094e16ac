//! Which of the GPUs that NVML shows belong to this process. A container's runtime has applied
//! `NVIDIA_VISIBLE_DEVICES` before any of our code runs, and restarts the count at 0; only
//! `CUDA_VISIBLE_DEVICES` is left for the process to apply.

use super::Identity;

/// Whether CUDA shows the GPU. The variable holds indices, or UUIDs that may be abbreviated, and
/// ends at the first entry that matches no GPU, as CUDA reads it; without the variable all are
/// shown. Indices are taken as NVML's, which equal CUDA's among GPUs of one model. A slice of a GPU
/// (`MIG-…`) matches none.
pub(crate) fn is_visible(gpu: &Identity, all: &[Identity], cuda: Option<&str>) -> bool {
    let Some(cuda) = cuda else { return true };
    let mut named = cuda.split(',').map_while(|entry| find(entry.trim(), all));
    named.any(|named| named == gpu)
}

fn find<'a>(entry: &str, all: &'a [Identity]) -> Option<&'a Identity> {
    if let Ok(index) = entry.parse::<u32>() {
        return all.iter().find(|gpu| gpu.index == index);
    }
    let is_uuid = entry.starts_with("GPU-");
    let mut meant = all
        .iter()
        .filter(|gpu| is_uuid && gpu.uuid.starts_with(entry));
    // A prefix that two share matches neither.
    meant.next().filter(|_| meant.next().is_none())
}

#[cfg(test)]
mod tests;
