//! Proofs over real processes; `make e2e` builds the binaries and runs them.

mod access;
mod attacks;
mod bad_input;
mod equality;
mod faults;
mod hub;
mod local;
mod logs;
mod observed;
mod prefixes;
mod traces;
mod weights;
