//! Proof of the compute backends: a device without a GPU, and ops of any backend held against the
//! CPU's.

#![allow(
    unsafe_code,
    reason = "the emulated device hands out raw memory and runs foreign code, as a GPU does"
)]

pub mod cases;
mod emulation;
pub mod speed;
pub mod suite;

pub use emulation::EmulatedDriver;
