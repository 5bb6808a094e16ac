//! A `--model-path` that names a repository of the Hugging Face hub, and no file of this machine: it is fetched to the
//! user's own cache first.

use crate::args::ModelArgs;
use anyhow::Result;
use pd_hub::{CONNECTIONS, Cache, Fetch, Hub, HubError, Progress, RepoName, Report};
use std::path::PathBuf;
use std::time::Duration;

/// How often it is logged how far it is.
const SAY_EVERY: Duration = Duration::from_secs(10);

/// Where the model lies, once it is fetched if it has to be.
pub(crate) async fn path(args: &ModelArgs) -> Result<PathBuf> {
    let Some(repo) = repository(args) else {
        return Ok(args.model_path.clone());
    };
    let fetch = Fetch {
        repo,
        revision: args.revision.clone(),
        file: None,
        cache: Cache::from_env()?,
        connections: CONNECTIONS,
        clean_up: None,
    };
    let progress = Progress::default();
    let hub = Hub::from_env(None)?;
    let say = |report: Report| tracing::info!(model = %fetch.repo, "{report}");
    let running = Box::pin(fetch.run_if_online(&hub, &progress));
    let fetched = progress.said_until(SAY_EVERY, say, running).await;
    let fetched = fetched.map_err(|error| explained(error, args))?;
    tracing::info!(commit = %fetched.commit, path = %fetched.path.display(), "model fetched");
    Ok(fetched.path)
}

/// The repository that is meant; nothing where a file or folder is.
fn repository(args: &ModelArgs) -> Option<RepoName> {
    if args.model_path.exists() {
        return None;
    }
    args.model_path.to_str()?.parse().ok()
}

/// A path that was mistyped looks like a repository, too.
fn explained(error: HubError, args: &ModelArgs) -> anyhow::Error {
    let path = args.model_path.display();
    let why = format!(
        "--model-path {path}: there is no such file or folder, and the hub has no such model"
    );
    if matches!(error, HubError::NoRepo { .. }) {
        return anyhow::Error::from(error).context(why);
    }
    error.into()
}

#[cfg(test)]
mod tests {
    //! Facts about what a model path means.

    use super::*;
    use crate::args::Args;
    use clap::Parser;

    #[test]
    fn only_what_is_no_file_here_names_a_repository() {
        let folder = tempfile::tempdir().expect("a folder");
        let here = folder.path().display().to_string();
        for (path, expected) in [
            ("Qwen/Qwen3-8B", Some("Qwen/Qwen3-8B")),
            ("./Qwen/Qwen3-8B", None),
            ("/models/Qwen3-8B", None),
            (here.as_str(), None),
        ] {
            let args = Args::try_parse_from(["pd-agent", "--model-path", path]).expect("arguments");
            let found = repository(&args.model);
            let found = found.as_ref().map(RepoName::as_str);
            assert_eq!(found, expected, "{path}");
        }
    }
}
