//! Inner loops, written once over the [`simd`] vector type and compiled for each instruction set.

pub(crate) mod exp;
pub(crate) mod linear;
pub(crate) mod simd;
