//! `pd-kube`: a Kubernetes to play with on this machine; `make kube-up` starts one.

#![allow(clippy::print_stdout, reason = "it talks to a person")]

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use pd_e2e::kube::cluster::{Cluster, Spec};
use pd_e2e::kube::daemon::Site;
use pd_e2e::kube::ledger::{Entry, Ledger};
use pd_e2e::kube::tools::{self, Tools};
use pd_e2e::kube::{forward, guard, node, teardown};
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::time::Instant;

#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    command: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Start a cluster, and leave it running
    Up {
        /// etcd, the apiserver and its controllers; needs no root, and pods stay Pending
        #[arg(long, conflicts_with_all = ["nodes", "gpus_per_node"])]
        control_plane_only: bool,
        /// On which pods run
        #[arg(long, default_value_t = 2)]
        nodes: u8,
        /// `nvidia.com/gpu` that each node pretends to have
        #[arg(long, default_value_t = 0)]
        gpus_per_node: u32,
        /// Where its files go; a temporary folder unless given
        #[arg(long)]
        dir: Option<PathBuf>,
    },
    /// End every cluster that was left running
    Down,
    /// Say what runs
    Status,
    /// Print the environment of the cluster that was left running, for a shell's `eval`
    Env,
    /// Build the programs that a cluster consists of, and print their folder
    Tools,
    /// Make an image known to every node
    Import {
        /// As `docker save` writes it
        archive: PathBuf,
    },
    /// Lead connections on standard input into the cluster; started by the owner
    #[command(hide = true)]
    Forward { target: SocketAddrV4 },
    /// End a cluster when its owner ends; started by the owner
    #[command(hide = true)]
    Guard {
        #[arg(long)]
        cache: PathBuf,
        #[arg(long)]
        id: String,
    },
}

#[tokio::main]
async fn main() -> Result<()> {
    match Args::parse().command {
        Action::Up {
            control_plane_only,
            nodes,
            gpus_per_node,
            dir,
        } => {
            let spec = Spec {
                gpus_per_node,
                dir,
                ..Spec::with_nodes(if control_plane_only { 0 } else { nodes })
            };
            up(spec).await
        }
        Action::Down => down().await,
        Action::Status => status(),
        Action::Env => env(),
        Action::Tools => {
            println!("{}", Tools::ready(&tools::cache())?.folder().display());
            Ok(())
        }
        Action::Import { archive } => import(&archive),
        Action::Forward { target } => forward::serve(target).await,
        Action::Guard { cache, id } => guard::stand(&cache, &id).await,
    }
}

async fn up(spec: Spec) -> Result<()> {
    if let Some(entry) = kept().first() {
        show(entry);
        bail!("it runs already; end it with `make kube-down`");
    }
    Tools::ready(&spec.cache)?;
    let started = Instant::now();
    let entry = Cluster::start(spec).await?.keep()?;
    println!("ready in {:.1} s", started.elapsed().as_secs_f64());
    show(&entry);
    println!("  eval \"$({} env)\"", std::env::current_exe()?.display());
    Ok(())
}

fn env() -> Result<()> {
    let entry = the_kept()?;
    let tools = Tools::ready(&tools::cache())?;
    println!("export KUBECONFIG={}", entry.kubeconfig().display());
    println!("export PATH={}:$PATH", tools.folder().display());
    Ok(())
}

async fn down() -> Result<()> {
    let ledger = Ledger::new(&tools::cache());
    let entries = ledger.entries();
    for entry in entries
        .iter()
        .filter(|e| e.owner.is_none() || e.is_orphan())
    {
        teardown::teardown(&ledger, entry).await?;
        println!("ended cluster {}, nothing of it is left", entry.id);
    }
    Ok(())
}

fn status() -> Result<()> {
    for entry in Ledger::new(&tools::cache()).entries() {
        show(&entry);
    }
    Ok(())
}

fn import(archive: &Path) -> Result<()> {
    let entry = the_kept()?;
    let site = Site {
        id: entry.id.clone(),
        dir: entry.dir.clone(),
        tools: PathBuf::new(),
    };
    for nr in 1..=entry.nodes {
        node::import(&site, &node::name(nr), archive)?;
    }
    println!("{} is known to {} nodes", archive.display(), entry.nodes);
    Ok(())
}

/// The cluster that `up` left running.
fn the_kept() -> Result<Entry> {
    kept()
        .into_iter()
        .next()
        .context("no cluster runs; start one with `make kube-up`")
}

/// Clusters that `up` left running.
fn kept() -> Vec<Entry> {
    let entries = Ledger::new(&tools::cache()).entries();
    entries
        .into_iter()
        .filter(|entry| entry.owner.is_none())
        .collect()
}

fn show(entry: &Entry) {
    let Entry { id, dir, nodes, .. } = entry;
    println!(
        "cluster {id}: {nodes} nodes, files and logs in {}",
        dir.display()
    );
    println!("  export KUBECONFIG={}", entry.kubeconfig().display());
}
