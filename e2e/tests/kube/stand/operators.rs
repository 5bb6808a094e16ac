//! The operators of a cluster: which leads, and how many there are.

use super::{NAMESPACE, Stand};
use anyhow::{Context, Result, ensure};

// === impl Stand ===

impl Stand {
    /// The pod that holds the Lease.
    pub(crate) fn leader(&self) -> Result<String> {
        let holder = self.kubectl(&format!(
            "get lease pd-operator -n {NAMESPACE} -o jsonpath={{.spec.holderIdentity}}"
        ))?;
        let pod = holder.rsplit_once('_').map(|(pod, _)| pod.to_owned());
        pod.with_context(|| format!("{holder:?} names no pod"))
    }

    pub(crate) async fn scale_operator(&self, replicas: u32) -> Result<()> {
        let what = format!("deploy/pdserve-operator -n {NAMESPACE}");
        self.kubectl(&format!("scale {what} --replicas={replicas}"))?;
        self.becomes(|| {
            let count = format!("get {what} -o jsonpath={{.status.readyReplicas}}");
            let ready = self.kubectl(&count)?.parse().unwrap_or(0);
            ensure!(ready == replicas, "{ready} operators are ready");
            Ok(())
        })
        .await
    }
}
