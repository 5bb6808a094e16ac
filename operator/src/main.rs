//! Operator: reconciles PDDeployments on Kubernetes, or on this machine.
fn main() {}
