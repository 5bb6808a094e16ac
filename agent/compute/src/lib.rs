//! Ops trait and compute backends.
