//! What is to run: the file's last good state, built, and what that wants of each component.

use super::cache;
use super::fleet::{Fleet, pod_of};
use super::launch::{self, LaunchEnvironment};
use super::model;
use crate::controller::build::component::Component;
use crate::controller::build::config::BuildConfig;
use crate::controller::build::slot::Slot;
use crate::controller::build::{self, Resources, pod, worker_key};
use crate::controller::dereference::{self, DereferenceError};
use crate::controller::plan::{Desired, Observed};
use crate::controller::validate::{self, Valid};
use kube::ResourceExt;
use pd_crds::field::FieldErrors;
use pd_crds::{PdDeployment, PdDeploymentSpec};
use pd_hub::HubError;
use pd_protocol::labels;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// A deployment that can run on this machine, and its objects.
pub(crate) struct Target {
    pub(crate) valid: Valid,
    pub(crate) resources: Resources,
}

/// Why a file cannot be run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TargetError {
    #[error(transparent)]
    Dereference(#[from] DereferenceError),
    #[error("{file}: {source}")]
    Model { file: PathBuf, source: HubError },
    #[error("{file} cannot run on this machine:\n{source}")]
    Invalid { file: PathBuf, source: FieldErrors },
    #[error("{file} cannot run on this machine: the {component} pod's\n{source}")]
    Pod {
        file: PathBuf,
        component: &'static str,
        source: FieldErrors,
    },
}

// === impl Target ===

impl Target {
    /// File → dereference → validate → build, and a try whether processes can stand for the pods.
    pub(crate) fn read(
        file: &Path,
        listen: Option<SocketAddr>,
        programs: &Path,
        cache: &Path,
    ) -> Result<Self, TargetError> {
        let mut dereferenced = dereference::file(file, listen)?;
        let missing = |source| TargetError::Model {
            file: file.to_owned(),
            source,
        };
        model::place(&mut dereferenced).map_err(missing)?;
        let invalid = |source| TargetError::Invalid {
            file: file.to_owned(),
            source,
        };
        let valid = validate::for_this_machine(dereferenced).map_err(invalid)?;
        let (namespace, name) = identity(valid.deployment());
        let config = BuildConfig {
            router_host: Some(listen.map_or(Ipv4Addr::LOCALHOST.into(), |listen| listen.ip())),
            peer_key_file: Some(cache::peer_key_file(cache, &namespace, &name)),
            ..BuildConfig::default()
        };
        let resources = build::build(&valid, &config).map_err(invalid)?;
        let target = Self { valid, resources };
        target.try_launch(file, programs)?;
        Ok(target)
    }

    fn try_launch(&self, file: &Path, programs: &Path) -> Result<(), TargetError> {
        let environment = LaunchEnvironment {
            address: Ipv4Addr::LOCALHOST.into(),
            programs: programs.to_owned(),
            secrets: [self.admin_secret(), self.worker_secret()]
                .map(|secret| (secret, String::new()))
                .into(),
        };
        let slot = Slot {
            ordinal: 0,
            incarnation: 1,
        };
        for component in [Component::Router, Component::Prefill, Component::Decode] {
            launch::launch(&pod_of(component, slot, &self.resources), &environment).map_err(
                |source| TargetError::Pod {
                    file: file.to_owned(),
                    component: component.as_str(),
                    source,
                },
            )?;
        }
        Ok(())
    }

    pub(crate) fn spec(&self) -> &PdDeploymentSpec {
        &self.valid.deployment().spec
    }

    /// Namespace and name.
    pub(crate) fn identity(&self) -> (String, String) {
        identity(self.valid.deployment())
    }

    /// Name and key of the Secret that would hold the admin token on a cluster.
    pub(crate) fn admin_secret(&self) -> (String, String) {
        let name = pod::admin_secret(self.valid.deployment());
        (name, pod::ADMIN_SECRET_KEY.to_owned())
    }

    /// The same of the Secret with the workers' key.
    pub(crate) fn worker_secret(&self) -> (String, String) {
        let name = worker_key::worker_secret(self.valid.deployment());
        (name, worker_key::WORKER_SECRET_KEY.to_owned())
    }

    /// What is wanted of each component. Routers cannot surge: two would need one address.
    pub(crate) fn desired(&self) -> Vec<Desired> {
        let Resources {
            prefill,
            decode,
            router,
            service: _,
            names: _,
            policy: _,
        } = &self.resources;
        let rollout = &self.spec().rollout;
        let router_spec = router.spec.as_ref();
        let metadata = router_spec.and_then(|spec| spec.template.metadata.as_ref());
        let labels = metadata.and_then(|metadata| metadata.labels.as_ref());
        let revision = labels.and_then(|labels| labels.get(labels::REVISION));
        let routers = Desired {
            component: Component::Router,
            replicas: count(router_spec.and_then(|spec| spec.replicas).unwrap_or(1)),
            revision: revision.cloned().unwrap_or_default(),
            surge: 0,
            unavailable: 1,
            paused: rollout.paused,
            nodes: 1,
        };
        let pools = [prefill, decode].map(|pool| pool.desired(self.spec(), pool.replicas));
        std::iter::once(routers).chain(pools).collect()
    }

    /// What is wanted on the way out: nothing; of workers only once no router is left that could
    /// still send them something.
    pub(crate) fn desired_at_stop(&self, fleet: &Fleet) -> Vec<Desired> {
        let mut entries = fleet.entries.values();
        let routed = entries.any(|entry| entry.component == Component::Router);
        self.desired()
            .into_iter()
            .filter(|pool| pool.component == Component::Router || !routed)
            .map(|pool| Desired {
                replicas: 0,
                ..pool
            })
            .collect()
    }
}

fn identity(deployment: &PdDeployment) -> (String, String) {
    let namespace = deployment.namespace();
    let namespace = namespace.unwrap_or_else(|| "default".to_owned());
    (namespace, deployment.name_any())
}

/// Whether every pod that is wanted serves, and no other is there.
pub(crate) fn is_ready(desired: &[Desired], observed: &Observed) -> bool {
    desired.iter().all(|pool| {
        let pods = observed.pods.iter();
        let (good, rest): (Vec<_>, Vec<_>) = pods
            .filter(|pod| pod.component == pool.component)
            .partition(|pod| pod.revision == pool.revision && pod.serves());
        good.len() == pool.replicas as usize && rest.is_empty()
    })
}

fn count(number: i32) -> u32 {
    u32::try_from(number).unwrap_or(0)
}
