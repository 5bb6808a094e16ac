//! Kubernetes types of pdserve: PDDeployment and its validation.
