//! Real verbs between hosts, on a machine without a NIC: small virtual machines with Soft-RoCE on an
//! Ethernet of our own. It proves semantics and faults, never speed.
//!
//! Processors are emulated, so nothing of it needs rights or /dev/kvm. What starts it can be killed in
//! any way; nothing of it stays but what was fetched into the cache.

pub mod bench;
pub mod ethernet;
pub mod initramfs;
pub mod libraries;
pub mod machine;
pub mod packages;
mod qmp;
