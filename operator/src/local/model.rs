//! A model of the hub on this machine: fetched to the user's own cache before anything starts, and found there from then
//! on. What runs is not held up by a fetch: an edit that names another model is refused until that is there.

use super::console::Console;
use super::target::TargetError;
use crate::controller::dereference::{self, Dereferenced, HostModel};
use pd_crds::model::{HostPathSource, HuggingFaceSource};
use pd_hub::{CONNECTIONS, Cache, Fetch, Hub, HubError, Progress, Report};
use std::path::Path;
use std::time::Duration;

/// How often it is said how far it is.
const SAY_EVERY: Duration = Duration::from_secs(2);

/// Fetches the model that a file names, if it names one of the hub.
pub(super) async fn fetch(file: &Path, console: Console) -> Result<(), TargetError> {
    let deployment = dereference::file(file, None)?.deployment;
    let Some(source) = &deployment.spec.model.source.hugging_face else {
        return Ok(());
    };
    let failed = |source| TargetError::Model {
        file: file.to_owned(),
        source,
    };
    let fetch = fetch_of(source).map_err(failed)?;
    // There are no Secrets here: the token is the user's own.
    let hub = Hub::from_env(source.endpoint.as_deref()).map_err(failed)?;
    let progress = Progress::default();
    let say = |report: Report| console.progress(&format!("{}: {report}", fetch.repo));
    let running = Box::pin(fetch.run_if_online(&hub, &progress));
    let fetched = progress.said_until(SAY_EVERY, say, running).await;
    fetched.map(drop).map_err(failed)
}

/// Puts the folder of a fetched model in the place of its repository.
pub(super) fn place(dereferenced: &mut Dereferenced) -> Result<(), HubError> {
    let source = &mut dereferenced.deployment.spec.model.source;
    let Some(repository) = &source.hugging_face else {
        return Ok(());
    };
    let path = fetch_of(repository)?.find()?.path;
    source.hugging_face = None;
    source.host_path = Some(HostPathSource {
        path: path.display().to_string(),
    });
    dereferenced.host_model = Some(HostModel { path, exists: true });
    Ok(())
}

fn fetch_of(source: &HuggingFaceSource) -> Result<Fetch, HubError> {
    Ok(Fetch {
        repo: source.repo.parse()?,
        revision: source.revision().to_owned(),
        file: source.file.clone(),
        cache: Cache::from_env()?,
        connections: CONNECTIONS,
        clean_up: None,
    })
}
