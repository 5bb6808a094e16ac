//! Proofs over real verbs between virtual hosts; `make e2e-rdma` builds what they need and runs them.

mod agents;
mod faults;
mod missing;
mod stand;
mod writes;
