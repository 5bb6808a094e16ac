//! Keeps the record of revisions: one for each that was wanted, the last dozen of them.

use super::apply::{ApplyError, Writer, failed, merge_params};
use crate::controller::build::history::{HISTORY_MAX, build_record};
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::ResourceExt;
use kube::api::Patch;
use serde_json::json;
use std::sync::Arc;

// === impl Writer ===

impl Writer<'_> {
    /// Records what the spec asks for as the newest revision, and forgets the oldest.
    pub(crate) async fn record_revision(&self) -> Result<(), ApplyError> {
        let mut known = self.context.revisions.of(&self.key());
        known.sort_by_key(|record| record.revision);
        let newest = known.last().map_or(0, |record| record.revision);
        let record = build_record(self.deployment, newest + 1);
        let name = record.name_any();
        match known.iter().find(|known| known.name_any() == name) {
            Some(known) if known.revision == newest => return Ok(()),
            // Gone back to: it is the newest again.
            Some(_) => self.renumber(&name, newest + 1).await?,
            None => self.create(&record).await?,
        }
        let others = known.iter().filter(|known| known.name_any() != name);
        let others: Vec<&Arc<ControllerRevision>> = others.collect();
        let too_many = others.len().saturating_sub(HISTORY_MAX);
        for record in &others[..too_many] {
            self.remove::<ControllerRevision>(&record.name_any())
                .await?;
        }
        Ok(())
    }

    async fn renumber(&self, name: &str, number: i64) -> Result<(), ApplyError> {
        let patch = Patch::Merge(json!({"revision": number}));
        let api = self.api::<ControllerRevision>();
        let patched = api.patch(name, &merge_params(), &patch).await;
        patched.map_err(|source| failed::<ControllerRevision>("renumber", name, source))?;
        Ok(())
    }
}
