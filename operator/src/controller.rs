//! The parts of a reconcile that are alike on a cluster and on this machine, without I/O: [`validate`], [`build`],
//! [`plan`], [`autoscale`]. [`cluster`](crate::cluster) and [`local`](crate::local) read and write;
//! [`dereference`] reads the file and the model of the latter.

pub(crate) mod autoscale;
pub(crate) mod build;
pub(crate) mod dereference;
pub(crate) mod plan;
pub(crate) mod site;
pub(crate) mod validate;
