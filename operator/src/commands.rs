//! What each command does.

use crate::args::{
    BuildArgs, CacheArgs, Cli, Command, LocalArgs, LocalCommand, RenderArgs, RunArgs,
};
use crate::cluster;
use crate::cluster::check::CheckError;
use crate::cluster::run::ClusterConfig;
use crate::controller::build::config::BuildConfig;
use crate::controller::build::network::Admins;
use crate::controller::site::{GangApis, Site};
use crate::local::run::{LocalConfig, run};
use crate::local::status::{LocalStatus, table};
use crate::local::{cache, child};
use crate::random_text::random_text;
use crate::render;
use anyhow::{Context, Result, bail};
use pd_crds::manifest::manifests;
use pd_protocol::labels::ENV_ADMIN_TOKEN;
use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tokio::runtime::Runtime;

/// Bytes of the admin token of one run.
const TOKEN_BYTES: usize = 24;

pub(crate) fn execute(cli: Cli) -> Result<()> {
    match cli.command {
        Command::Crds => crds(),
        Command::Render(args) => print_rendered(args),
        Command::Run(args) => run_on_cluster(args),
        Command::CheckInstall {
            namespace,
            operator,
        } => check(cluster::check::install(
            namespace.as_deref(),
            operator.as_deref(),
        )),
        Command::OpenFolder { folder } => open_folder(&folder),
        Command::RunChild {
            parent,
            program,
            args,
        } => Err(child::become_program(parent, program, args).into()),
        Command::Local(LocalArgs {
            command: Some(LocalCommand::Status { json, cache }),
            ..
        }) => status(json, &cache),
        Command::Local(LocalArgs {
            command: None,
            file,
            listen,
            once,
            cache,
        }) => {
            let Some(file) = file else {
                bail!("give the file to run: -f FILE")
            };
            local(LocalConfig {
                file,
                listen,
                once,
                cache: cache.folder(),
                programs: programs()?,
                admin_token: token(),
            })
        }
    }
}

fn crds() -> Result<()> {
    let files: Vec<String> = manifests()
        .into_iter()
        .map(|manifest| manifest.yaml)
        .collect();
    print(&files.join("---\n"))
}

fn print_rendered(args: RenderArgs) -> Result<()> {
    let config = build_config(args.build, false);
    print(&render::render(&args.file, &args.namespace, &config)?)
}

fn build_config(args: BuildArgs, namespaced: bool) -> BuildConfig {
    let admins = args.network_policies.then(|| Admins {
        operator_namespace: pod_namespace(),
        blocks: args.admin_from,
        metrics_namespaces: args.metrics_from,
    });
    let default = BuildConfig::default();
    BuildConfig {
        image: args.image.unwrap_or(default.image),
        router_role: args.router_role,
        discovery: true,
        namespaced,
        admins,
        may_raise_privileges: args.allow_privileged_overrides,
        site: Site {
            host_paths: args.allow_host_path,
            cache_paths: args.allow_cache_path,
            service_accounts: args.allow_service_account,
            image_volumes: args.allow_image_volumes,
            kubernetes_minor: None,
            shared_memory: args.shared_memory_path,
            ipv6: is_ipv6_cluster(),
            gangs: GangApis::default(),
        },
        router_host: None,
        peer_key_file: None,
        proxy: Vec::new(),
    }
}

/// The variables of proxies that this process has.
fn proxy() -> Vec<(String, String)> {
    let names = ["HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"].map(str::to_owned);
    let names = names.into_iter();
    let both = names.flat_map(|name| [name.to_ascii_lowercase(), name]);
    let set = both.filter_map(|name| {
        let value = std::env::var(&name).ok()?;
        Some((name, value))
    });
    set.collect()
}

/// Whether the Services of the cluster around this process have IPv6 addresses first, as pods then
/// have, too.
fn is_ipv6_cluster() -> bool {
    std::env::var("KUBERNETES_SERVICE_HOST").is_ok_and(|host| host.contains(':'))
}

fn run_on_cluster(args: RunArgs) -> Result<()> {
    let image = args.build.image.clone();
    let build = BuildConfig {
        proxy: proxy(),
        ..build_config(args.build, args.namespace.is_some())
    };
    let admins = build.admins.as_ref();
    if admins.is_some_and(Admins::lock_out_the_operator) {
        bail!(
            "--network-policies outside a cluster would keep this operator from the admin ports: \
             give its address by --admin-from CIDR, or POD_NAMESPACE where it runs as a pod"
        );
    }
    let config = ClusterConfig {
        build,
        image,
        namespace: args.namespace,
        leader_election: args.leader_election,
        listen: args.listen,
        host_ports: args.host_ports,
    };
    threads()?.block_on(cluster::run::run(config))?;
    Ok(())
}

/// Of its files each belongs to who made it: the mode of `/tmp`.
fn open_folder(folder: &Path) -> Result<()> {
    let mode = Permissions::from_mode(0o1777);
    std::fs::set_permissions(folder, mode)
        .with_context(|| format!("cannot open {} to workers", folder.display()))
}

/// Where the operator runs; nothing outside a cluster.
fn pod_namespace() -> Option<String> {
    let namespace = std::env::var("POD_NAMESPACE").ok();
    namespace.filter(|namespace| !namespace.is_empty())
}

fn check(checked: impl Future<Output = Result<String, CheckError>>) -> Result<()> {
    let text = threads()?.block_on(checked)?;
    print(&format!("{text}\n"))
}

fn threads() -> Result<Runtime> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_name("pd-operator")
        .enable_all()
        .build();
    runtime.context("cannot start the worker threads")
}

/// A child's life is tied to the thread that started it, so one thread does everything.
fn local(config: LocalConfig) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.context("cannot start")?.block_on(run(config))?;
    Ok(())
}

fn status(json: bool, cache: &CacheArgs) -> Result<()> {
    let states = cache::running(&cache.folder());
    let states: Vec<LocalStatus> = states
        .iter()
        .filter_map(|state| serde_json::from_slice(state).ok())
        .collect();
    if json {
        let text = serde_json::to_string_pretty(&states).context("cannot print the status")?;
        return print(&format!("{text}\n"));
    }
    print(&table(&states))
}

/// Agents and routers lie beside this binary.
fn programs() -> Result<std::path::PathBuf> {
    let own = std::env::current_exe().context("cannot find the folder of this program")?;
    Ok(own
        .parent()
        .context("this program lies in no folder")?
        .to_owned())
}

/// The admin token of the environment, or a random one.
fn token() -> String {
    if let Ok(token) = std::env::var(ENV_ADMIN_TOKEN) {
        return token;
    }
    random_text::<TOKEN_BYTES>()
}

fn print(text: &str) -> Result<()> {
    std::io::stdout()
        .lock()
        .write_all(text.as_bytes())
        .context("cannot write to stdout")
}
