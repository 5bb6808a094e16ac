//! The engine from outside: whole requests over tiny checkpoints, in one process.

mod harness;
mod monolith;
