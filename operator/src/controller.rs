//! One reconcile, a step a file: dereference (all reads) → validate → build (objects without I/O).
//! What applies the objects differs by place; on this machine it is [`local`](crate::local).

pub(crate) mod autoscale;
pub(crate) mod build;
pub(crate) mod dereference;
pub(crate) mod plan;
pub(crate) mod site;
pub(crate) mod validate;
