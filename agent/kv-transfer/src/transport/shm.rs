//! Pull over shared memory: decode maps prefill's regions read-only and copies from them. Prefill
//! says by a lease, a word in a table that it shares too, for how long pages are a room's; it moves
//! the lease on before it frees them, and a puller looks at the lease after it copied. So neither
//! side ever waits for the other, frozen or dead, before it uses its own pages again.

pub(crate) mod export;
pub(crate) mod lease;
pub(crate) mod mapping;
pub(crate) mod offer;
pub(crate) mod pull;
pub(crate) mod socket;

/// Boot id of the kernel: processes with the same one may share memory.
pub(crate) fn host_id() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}
