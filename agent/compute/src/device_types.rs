//! What the ops of a backend are made of: its buffers, packed weights and tickets.
//!
//! Apart from [`Backend`](crate::ops::Backend), so that an op's struct can name a buffer without
//! knowing the trait that lists the ops.

use crate::buffer::{DeviceBuffer, Ticket};
use crate::k_order::KOrder;
use std::fmt::Debug;

/// The types of one backend.
pub trait DeviceTypes: Clone + Debug + Send + Sync + 'static {
    type Buffer: DeviceBuffer;
    /// A packed linear weight.
    type Weight: WeightMatrix;
    /// A packed embedding table.
    type Embedding: Matrix;
    /// The packed experts of a layer.
    type Experts: ExpertMatrices;
    type Ticket: Ticket;
}

/// A weight of `n` rows of `k` values, parts and interleaved ones counted together.
pub trait Matrix: Clone + Debug + Send + Sync + 'static {
    /// Outputs of a linear, or tokens of an embedding.
    fn n(&self) -> usize;

    /// Inputs of a linear, or the length of an embedding's row.
    fn k(&self) -> usize;
}

/// A packed linear weight.
pub trait WeightMatrix: Matrix {
    /// The order in which products add up k. It is a chain, too, for a weight that was packed for a tree but whose k does
    /// not have eight shares that suit its format: then it belongs on one rank.
    fn k_order(&self) -> KOrder;
}

/// Experts of a layer, all of one shape.
pub trait ExpertMatrices: Clone + Debug + Send + Sync + 'static {
    fn count(&self) -> usize;

    /// Length of an input and of an output row.
    fn hidden(&self) -> usize;

    /// Length of a row between gate and down.
    fn width(&self) -> usize;
}
