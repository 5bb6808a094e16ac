//! The local runtime over real processes, with stand-ins for agents and routers.

mod bench;
mod faults;
mod files;
mod life;
mod scaling;
