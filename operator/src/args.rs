//! The command line.

use crate::cluster::host_ports::PortRange;
use crate::local::cache;
use clap::{Args, Parser, Subcommand};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Serves LLMs with prefill and decode in separate pools.
#[derive(Debug, Parser)]
#[command(name = "pd-operator", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Reconcile the PDDeployments of a cluster
    Run(RunArgs),
    /// Run a PDDeployment as processes on this machine
    Local(LocalArgs),
    /// Print the CustomResourceDefinitions as YAML
    Crds,
    /// Print what `run` with the same flags would make of a PDDeployment, as YAML; nothing is asked of a
    /// cluster
    Render(RenderArgs),
    /// Fail unless the kinds are served and an operator leads
    CheckInstall {
        /// Namespace to look in [default: all]
        #[arg(long, value_name = "NAME")]
        namespace: Option<String>,
        /// The operator's Service, in the own namespace; it must answer, too
        #[arg(long, value_name = "SERVICE")]
        operator: Option<String>,
    },
    /// Let every user write into a folder; for the init container of workers that share memory
    #[command(hide = true)]
    OpenFolder { folder: PathBuf },
    /// Become the process of a pod; the local runtime's own
    #[command(hide = true)]
    RunChild {
        parent: i32,
        program: PathBuf,
        #[arg(last = true)]
        args: Vec<OsString>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Namespace to reconcile [default: all]
    #[arg(long, value_name = "NAME", env = "PDSERVE_NAMESPACE")]
    pub(crate) namespace: Option<String>,
    #[command(flatten)]
    pub(crate) build: BuildArgs,
    /// Ports for workers that share their node's network, four each
    #[arg(long, value_name = "FIRST-LAST", default_value_t)]
    pub(crate) host_ports: PortRange,
    /// Write only while holding the Lease `pd-operator` of the own namespace
    #[arg(long)]
    pub(crate) leader_election: bool,
    /// Address of `/livez`, `/readyz` and `/metrics`
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:8080")]
    pub(crate) listen: SocketAddr,
    /// `error`, `warn`, `info`, `debug` or `trace`
    #[arg(long, value_name = "LEVEL", default_value = "info", env = "RUST_LOG")]
    pub(crate) log_level: String,
}

/// What the objects of a deployment depend on beside its spec.
#[derive(Debug, Args)]
pub(crate) struct BuildArgs {
    /// Image of agents and routers whose spec names none [default: the own pod's]
    #[arg(long, value_name = "IMAGE", env = "PDSERVE_IMAGE")]
    pub(crate) image: Option<String>,
    /// Role of routers, which the chart installs: a ClusterRole, or with --namespace a Role
    #[arg(long, value_name = "NAME", default_value = "pdserve-router")]
    pub(crate) router_role: String,
    /// Let a podTemplate raise the privileges of its pods: host network, host paths, root. With it any
    /// host path and any account is allowed, too
    #[arg(long)]
    pub(crate) allow_privileged_overrides: bool,
    /// Folder of the nodes that models may come from by hostPath, with all below it; may be given again
    /// [default: none]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) allow_host_path: Vec<PathBuf>,
    /// Folder of the nodes into which models may be fetched (spec.model.source.huggingFace.cache.hostPath), with all
    /// below it; may be given again [default: none]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) allow_cache_path: Vec<PathBuf>,
    /// Account that workers may run under (spec.engine.serviceAccountName), in any namespace; may be
    /// given again [default: none]
    #[arg(long, value_name = "NAME")]
    pub(crate) allow_service_account: Vec<String>,
    /// The feature gate ImageVolume is on although Kubernetes is older than 1.35
    #[arg(long)]
    pub(crate) allow_image_volumes: bool,
    /// Folder of the nodes below which workers of one node share KV memory, where a PDDeployment asks for
    /// it (spec.kv.nodeSharedMemory); best on a tmpfs, such as /run/pdserve [default: none]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) shared_memory_path: Option<PathBuf>,
    /// Make network policies: workers are reached by their own deployment and the operator alone
    #[arg(long)]
    pub(crate) network_policies: bool,
    /// Address block that may reach admin ports in addition to the operator, such as the API server's,
    /// through which `kubectl pd` asks; may be given again
    #[arg(long, value_name = "CIDR", requires = "network_policies")]
    pub(crate) admin_from: Vec<String>,
    /// Namespace whose pods may reach the workers' HTTP port, for its /metrics; may be given again
    #[arg(long, value_name = "NAME", requires = "network_policies")]
    pub(crate) metrics_from: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RenderArgs {
    /// PDDeployment to render; a relative hostPath is taken from its folder
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Namespace of the objects, where the file names none
    #[arg(short, long, value_name = "NAME", default_value = "default")]
    pub(crate) namespace: String,
    #[command(flatten)]
    pub(crate) build: BuildArgs,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct LocalArgs {
    #[command(subcommand)]
    pub(crate) command: Option<LocalCommand>,
    /// PDDeployment to run; edits of it are followed while it runs
    #[arg(short, long, value_name = "FILE", required = true)]
    pub(crate) file: Option<PathBuf>,
    /// Address of the OpenAI API [default: 127.0.0.1 and the port of spec.router.port]
    #[arg(long, value_name = "IP:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// Stop again as soon as everything is ready; fail if a process ends before
    #[arg(long)]
    pub(crate) once: bool,
    #[command(flatten)]
    pub(crate) cache: CacheArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LocalCommand {
    /// Show what runs on this machine
    Status {
        /// Print JSON instead of a table
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        cache: CacheArgs,
    },
}

#[derive(Clone, Debug, Args)]
pub(crate) struct CacheArgs {
    /// Folder for state files [default: the user's cache folder, pdserve]
    #[arg(long, value_name = "FOLDER", env = "PDSERVE_CACHE_DIR")]
    cache_dir: Option<PathBuf>,
}

// === impl Command ===

impl Command {
    /// Where the log is what a person reads.
    pub(crate) fn log_level(&self) -> Option<&str> {
        match self {
            Self::Run(run) => Some(&run.log_level),
            Self::Local(_)
            | Self::Crds
            | Self::Render(_)
            | Self::CheckInstall { .. }
            | Self::OpenFolder { .. }
            | Self::RunChild { .. } => None,
        }
    }
}

// === impl CacheArgs ===

impl CacheArgs {
    pub(crate) fn folder(&self) -> PathBuf {
        self.cache_dir.clone().unwrap_or_else(|| {
            let path = |name| std::env::var_os(name).map(PathBuf::from);
            cache::default_folder(path("XDG_CACHE_HOME"), path("HOME"))
        })
    }
}

#[cfg(test)]
mod tests;
