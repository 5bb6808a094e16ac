//! A Pod to what a process needs: program, arguments, environment, probes.

use super::probe::{ProbeSpec, ProbeTarget, Probes};
use super::support;
use k8s_openapi::api::core::v1::{
    Container, ContainerPort, EnvVar, EnvVarSource, HostPathVolumeSource, Pod, Probe, Volume,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use pd_crds::field::{FieldError, FieldErrors, FieldPath};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Our own programs, which lie beside this one.
const PROGRAMS: [&str; 2] = ["pd-agent", "pd-router"];

/// What a process needs beside its pod.
#[derive(Clone, Debug)]
pub(crate) struct LaunchEnvironment {
    /// Address of the pod.
    pub(crate) address: IpAddr,
    /// Folder of the programs.
    pub(crate) programs: PathBuf,
    /// Values of Secrets, by name and key.
    pub(crate) secrets: BTreeMap<(String, String), String>,
}

/// Everything needed to start and watch a pod's process.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Launch {
    pub(crate) pod: String,
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) ports: BTreeMap<String, u16>,
    pub(crate) probes: Probes,
    pub(crate) grace: Duration,
}

/// Reads a pod; refuses what a process on this machine would not get.
pub(crate) fn launch(pod: &Pod, environment: &LaunchEnvironment) -> Result<Launch, FieldErrors> {
    support::check(pod)?;
    let path = FieldPath::new("spec.containers");
    let spec = pod
        .spec
        .as_ref()
        .ok_or_else(|| FieldPath::new("spec").error("missing"))?;
    let [container] = spec.containers.as_slice() else {
        return Err(path
            .error("a pod on this machine has exactly one container")
            .into());
    };
    let path = path.index(0);
    check_mounts(
        container,
        spec.volumes.as_deref().unwrap_or_default(),
        &path,
    )?;
    let env = build_env(pod, container, environment, &path)?;
    let grace = spec.termination_grace_period_seconds.unwrap_or(30);
    let ports = build_ports(container, &path)?;
    let (program, words) = find_program(container, environment, &path)?;
    let args = words.iter().chain(container.args.iter().flatten());
    let args = args.map(|arg| expand(arg, &env));
    Ok(Launch {
        pod: pod.metadata.name.clone().unwrap_or_default(),
        program,
        args: args.collect(),
        probes: build_probes(container, environment.address, &ports, &path)?,
        env,
        ports,
        grace: Duration::from_secs(u64::try_from(grace).unwrap_or(0)),
    })
}

/// The program, and the words of the command behind it.
fn find_program<'a>(
    container: &'a Container,
    environment: &LaunchEnvironment,
    path: &FieldPath,
) -> Result<(PathBuf, &'a [String]), FieldError> {
    let path = path.child("command");
    let command = container.command.as_deref().unwrap_or_default();
    let Some((name, words)) = command.split_first() else {
        return Err(path.error("is missing; a process has no image that would name a program"));
    };
    if PROGRAMS.contains(&name.as_str()) {
        let program = environment.programs.join(name);
        if !program.is_file() {
            return Err(path.error(format!(
                "{} is missing; build it with `cargo build -p {name}` in the same profile",
                program.display()
            )));
        }
        return Ok((program, words));
    }
    let program = find_on_path(name);
    let program = program.ok_or_else(|| {
        path.error(format!(
            "{name} is not on the PATH; install it, or give its path in spec.engine.command"
        ))
    })?;
    Ok((program, words))
}

/// A program as a shell would find it.
fn find_on_path(name: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&folders).map(|folder| folder.join(name));
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|program| program.is_file());
    }
    places.find(|program| program.is_file())
}

/// A process sees the file system as it is, so a volume must lie where it is to be mounted.
fn check_mounts(
    container: &Container,
    volumes: &[Volume],
    path: &FieldPath,
) -> Result<(), FieldErrors> {
    let mut errors = Vec::new();
    for (i, mount) in container.volume_mounts.iter().flatten().enumerate() {
        let volume = volumes.iter().find(|volume| volume.name == mount.name);
        let host_path = volume.and_then(|volume| volume.host_path.as_ref());
        let same_place = host_path.is_some_and(|HostPathVolumeSource { path, type_: _ }| {
            Path::new(path) == Path::new(&mount.mount_path)
        });
        if !same_place {
            let path = path.child("volumeMounts").index(i).child("mountPath");
            errors
                .push(path.error("on this machine a volume is mounted where it lies on the host"));
        }
    }
    FieldErrors::check(errors)
}

fn build_env(
    pod: &Pod,
    container: &Container,
    environment: &LaunchEnvironment,
    path: &FieldPath,
) -> Result<BTreeMap<String, String>, FieldErrors> {
    let mut env = BTreeMap::new();
    for (
        i,
        EnvVar {
            name,
            value,
            value_from,
        },
    ) in container.env.iter().flatten().enumerate()
    {
        let path = path.child("env").index(i);
        let value = match (value, value_from) {
            (_, Some(source)) => resolve(source, pod, environment, &path.child("valueFrom"))?,
            (Some(value), None) => expand(value, &env),
            (None, None) => String::new(),
        };
        env.insert(name.clone(), value);
    }
    Ok(env)
}

fn resolve(
    source: &EnvVarSource,
    pod: &Pod,
    environment: &LaunchEnvironment,
    path: &FieldPath,
) -> Result<String, FieldError> {
    if let Some(field) = &source.field_ref {
        return match field.field_path.as_str() {
            "metadata.name" => Ok(pod.metadata.name.clone().unwrap_or_default()),
            "metadata.namespace" => Ok(pod.metadata.namespace.clone().unwrap_or_default()),
            // This machine is no node; who asks learns that.
            "spec.nodeName" => Ok(String::new()),
            "status.podIP" => Ok(environment.address.to_string()),
            other => Err(path.child("fieldRef").child("fieldPath").error(format!(
                "{other} has no value on this machine; metadata.name, metadata.namespace and \
                 status.podIP have"
            ))),
        };
    }
    let key = source
        .secret_key_ref
        .as_ref()
        .map(|key| (key.name.clone(), key.key.clone()));
    let value = key.and_then(|key| environment.secrets.get(&key));
    value
        .cloned()
        .ok_or_else(|| path.error("there are no Secrets on this machine; give the value itself"))
}

/// Replaces `$(NAME)` by the variable's value; `$$` is a dollar, unknown names stay as they are.
fn expand(text: &str, env: &BTreeMap<String, String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let name = rest
            .strip_prefix("$(")
            .and_then(|rest| rest.split_once(')'));
        match name.map(|(name, after)| (env.get(name), after)) {
            Some((Some(value), after)) => {
                out.push_str(value);
                rest = after;
            }
            Some((None, _)) | None => {
                out.push('$');
                rest = rest
                    .strip_prefix("$$")
                    .or(rest.strip_prefix('$'))
                    .unwrap_or_default();
            }
        }
    }
    out.push_str(rest);
    out
}

fn build_ports(
    container: &Container,
    path: &FieldPath,
) -> Result<BTreeMap<String, u16>, FieldError> {
    let mut ports = BTreeMap::new();
    for (i, port) in container.ports.iter().flatten().enumerate() {
        let ContainerPort {
            name,
            container_port,
            ..
        } = port;
        let path = path.child("ports").index(i).child("containerPort");
        let number = u16::try_from(*container_port)
            .map_err(|_| path.error(format!("{container_port} is not a port")))?;
        ports.insert(name.clone().unwrap_or_else(|| number.to_string()), number);
    }
    Ok(ports)
}

fn build_probes(
    container: &Container,
    address: IpAddr,
    ports: &BTreeMap<String, u16>,
    path: &FieldPath,
) -> Result<Probes, FieldError> {
    let build = |name: &str, probe: &Option<Probe>| {
        let path = path.child(name);
        probe
            .as_ref()
            .map(|probe| build_probe(probe, address, ports, &path))
            .transpose()
    };
    Ok(Probes {
        startup: build("startupProbe", &container.startup_probe)?,
        readiness: build("readinessProbe", &container.readiness_probe)?,
        liveness: build("livenessProbe", &container.liveness_probe)?,
    })
}

fn build_probe(
    probe: &Probe,
    address: IpAddr,
    ports: &BTreeMap<String, u16>,
    path: &FieldPath,
) -> Result<ProbeSpec, FieldError> {
    let number = |port: &IntOrString, kind: &str| {
        let number = match port {
            IntOrString::Int(number) => u16::try_from(*number).ok(),
            IntOrString::String(name) => ports.get(name).copied(),
        };
        let path = path.child(kind).child("port");
        number.ok_or_else(|| path.error("is neither a port nor the name of one"))
    };
    let host = |given: Option<&String>, kind: &str| match given {
        Some(host) => {
            let path = path.child(kind).child("host");
            let parsed = host.parse();
            parsed.map_err(|_| path.error(format!("{host} is not an IP address")))
        }
        None => Ok(address),
    };
    let target = if let Some(get) = &probe.http_get {
        let scheme = get.scheme.as_deref().unwrap_or("HTTP").to_ascii_lowercase();
        let host = host(get.host.as_ref(), "httpGet")?;
        let at = SocketAddr::new(dialable(host), number(&get.port, "httpGet")?);
        let target = get.path.as_deref().unwrap_or("/");
        ProbeTarget::Http(format!("{scheme}://{at}{target}"))
    } else if let Some(socket) = &probe.tcp_socket {
        let host = host(socket.host.as_ref(), "tcpSocket")?;
        let port = number(&socket.port, "tcpSocket")?;
        ProbeTarget::Tcp(SocketAddr::new(dialable(host), port))
    } else {
        return Err(path.error("on this machine a probe is an httpGet or a tcpSocket"));
    };
    let seconds = |value: Option<i32>, default: u64| {
        Duration::from_secs(value.and_then(|v| u64::try_from(v).ok()).unwrap_or(default))
    };
    let count = |value: Option<i32>, default: u32| {
        value
            .and_then(|v| u32::try_from(v).ok())
            .unwrap_or(default)
            .max(1)
    };
    Ok(ProbeSpec {
        target,
        initial_delay: seconds(probe.initial_delay_seconds, 0),
        period: seconds(probe.period_seconds, 10).max(Duration::from_secs(1)),
        timeout: seconds(probe.timeout_seconds, 1).max(Duration::from_secs(1)),
        failures: count(probe.failure_threshold, 3),
        successes: count(probe.success_threshold, 1),
    })
}

/// An address that listens everywhere is reached on this machine by loopback.
pub(crate) fn dialable(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(v4) if v4.is_unspecified() => std::net::Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(v6) if v6.is_unspecified() => std::net::Ipv6Addr::LOCALHOST.into(),
        IpAddr::V4(_) | IpAddr::V6(_) => address,
    }
}

#[cfg(test)]
mod tests;
