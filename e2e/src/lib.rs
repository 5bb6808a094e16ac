//! Harness and proofs over real processes.
