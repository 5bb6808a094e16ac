//! The command line.

use crate::connection::{Cluster, Target};
use crate::text::print;
use crate::{bundle, doctor, drain, explain, rollout, rotate_keys, status};
use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// Shows the PDDeployments of a cluster, says what holds them back, and moves them.
#[derive(Debug, Parser)]
#[command(name = "kubectl-pd", bin_name = "kubectl pd", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Pools, revisions, workers, latency and the autoscaler's last decision, on one screen
    Status {
        /// PDDeployment to show [default: all of the namespace]
        name: Option<String>,
        /// Show those of all namespaces
        #[arg(short = 'A', long, conflicts_with = "name")]
        all_namespaces: bool,
    },
    /// What holds a PDDeployment back now, most important first
    Explain {
        /// PDDeployment to explain
        name: String,
    },
    /// Whether the cluster has what PDDeployments need: Kubernetes, operator, GPUs, driver, RDMA, volumes, images
    Doctor,
    /// One archive of all that support needs of a PDDeployment: objects, events, logs; without secrets
    Bundle {
        /// PDDeployment that is meant
        name: String,
        /// File to write [default: pdserve-NAME-TIME.tar.gz]
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Have a worker finish its requests and leave; another takes its place
    Drain {
        /// Pod of the worker
        pod: String,
        /// Return when the pod is gone
        #[arg(long)]
        wait: bool,
    },
    /// Replace all workers of a PDDeployment step by step, as a rollout of the same spec
    Restart {
        /// PDDeployment whose workers are replaced
        name: String,
    },
    /// Replace the peer keys of a PDDeployment step by step, without a restart
    RotateKeys {
        /// PDDeployment whose keys are replaced
        name: String,
    },
    /// The revisions of a PDDeployment: list them, go back, hold, go on
    Rollout {
        #[command(subcommand)]
        command: RolloutCommand,
    },
}

#[derive(Debug, Subcommand)]
enum RolloutCommand {
    /// List the revisions that can be gone back to, and what each changed
    History {
        /// PDDeployment whose revisions are meant
        name: String,
    },
    /// Go back to an earlier revision; sizes stay
    Undo {
        /// PDDeployment whose revisions are meant
        name: String,
        /// Revision or its number, as `history` lists them [default: the previous one]
        #[arg(long, value_name = "REV")]
        to_revision: Option<String>,
    },
    /// Stop a rollout where it is
    Pause {
        /// PDDeployment whose revisions are meant
        name: String,
    },
    /// Let a paused rollout go on
    Resume {
        /// PDDeployment whose revisions are meant
        name: String,
    },
}

// === impl Cli ===

impl Cli {
    pub(crate) fn execute(self) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.context("cannot start")?.block_on(async {
            let cluster = Cluster::connect(&self.target).await?;
            self.command.execute(&cluster).await
        })
    }
}

// === impl Command ===

impl Command {
    async fn execute(self, cluster: &Cluster) -> Result<()> {
        let text = match self {
            Self::Status {
                name: Some(name), ..
            } => status::one(cluster, &name).await?,
            Self::Status { all_namespaces, .. } => status::all(cluster, all_namespaces).await?,
            Self::Explain { name } => explain::explain(cluster, &name).await?,
            Self::Doctor => doctor::doctor(cluster).await?,
            Self::Bundle { name, output } => bundle::bundle(cluster, &name, output).await?,
            Self::Drain { pod, wait } => return drain::drain(cluster, &pod, wait).await,
            Self::Restart { name } => rollout::restart::restart(cluster, &name).await?,
            Self::RotateKeys { name } => rotate_keys::rotate_keys(cluster, &name).await?,
            Self::Rollout { command } => command.execute(cluster).await?,
        };
        print(&text)
    }
}

// === impl RolloutCommand ===

impl RolloutCommand {
    async fn execute(self, cluster: &Cluster) -> Result<String> {
        match self {
            Self::History { name } => rollout::history::history(cluster, &name).await,
            Self::Undo { name, to_revision } => {
                rollout::undo::undo(cluster, &name, to_revision.as_deref()).await
            }
            Self::Pause { name } => rollout::pause(cluster, &name, true).await,
            Self::Resume { name } => rollout::pause(cluster, &name, false).await,
        }
    }
}

#[cfg(test)]
mod tests;
