//! CoreDNS beside the control plane: where pods resolve names.

use super::Cluster;
use crate::kube::node::DOMAIN;
use crate::kube::tools::ExtraTool;
use crate::kube::versions::COREDNS;
use anyhow::{Context, Result};
use std::fs;

// === impl Cluster ===

impl Cluster {
    /// # Errors
    /// When CoreDNS cannot be built or started.
    pub(super) fn start_names(&mut self) -> Result<()> {
        let tool = ExtraTool::ready(&self.cache, &COREDNS)?;
        let kubeconfig = self.control_plane.plan.own_kubeconfig()?;
        let file = self.dir().join("Corefile");
        let text = format!(
            ".:53 {{\n    errors\n    kubernetes {DOMAIN} {{\n        kubeconfig {}\n    }}\n}}\n",
            kubeconfig.display()
        );
        fs::write(&file, text).with_context(|| format!("write {}", file.display()))?;
        let words = [tool.program, "-conf".into(), file];
        let command = words.map(|word| word.display().to_string()).to_vec();
        self.run("coredns", command)
    }
}
