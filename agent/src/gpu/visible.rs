//! Which of the GPUs that NVML shows are this process's. A container's runtime has carried out
//! `NVIDIA_VISIBLE_DEVICES` before anything of ours runs, and counts from 0 again inside; only
//! `CUDA_VISIBLE_DEVICES` is left for the process to heed.

use super::Identity;

/// Whether CUDA shows the GPU. The variable holds indices, or UUIDs that may be cut short, and ends
/// at the first entry that names no GPU, as CUDA reads it; absent, all are shown. Indices are taken
/// to be NVML's, which CUDA's are among GPUs of one model. A slice of a GPU (`MIG-…`) names none.
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
    // A beginning that two share names neither.
    meant.next().filter(|_| meant.next().is_none())
}

#[cfg(test)]
mod tests;
