//! The cluster that the commands talk to, and errors that say what could not be done to what.

use anyhow::{Result, anyhow};
use clap::Args;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::{ListParams, PatchParams};
use kube::config::KubeConfigOptions;
use kube::core::Status;
use kube::{Api, Client, Config, Resource};
use pd_crds::PdDeployment;
use std::fmt::Debug;

/// Field manager of what the commands write.
pub(crate) const MANAGER: &str = "kubectl-pd";

/// Which cluster, and where in it; the kubeconfig is `KUBECONFIG` or `~/.kube/config`.
#[derive(Debug, Args)]
pub(crate) struct Target {
    /// Namespace [default: that of the context]
    #[arg(short, long, global = true, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// Context of the kubeconfig [default: the current one]
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) context: Option<String>,
}

/// A cluster, and the namespace that commands look in.
pub(crate) struct Cluster {
    pub(crate) client: Client,
    pub(crate) namespace: String,
}

// === impl Cluster ===

impl Cluster {
    pub(crate) async fn connect(target: &Target) -> Result<Self> {
        let config = match &target.context {
            Some(_) => {
                let options = KubeConfigOptions {
                    context: target.context.clone(),
                    ..KubeConfigOptions::default()
                };
                let config = Config::from_kubeconfig(&options).await;
                config.map_err(|error| unusable(&error))?
            }
            None => Config::infer().await.map_err(|error| unusable(&error))?,
        };
        let default = config.default_namespace.clone();
        Ok(Self {
            client: Client::try_from(config).map_err(|error| unusable(&error))?,
            namespace: target.namespace.clone().unwrap_or(default),
        })
    }

    /// The same cluster, another namespace.
    pub(crate) fn within(&self, namespace: String) -> Self {
        Self {
            client: self.client.clone(),
            namespace,
        }
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) async fn get<K>(&self, name: &str) -> Result<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
        K: Clone + Debug + DeserializeOwned,
    {
        let found = self.api::<K>().get(name).await;
        found.map_err(|error| self.failed::<K>("read", name, &error))
    }

    pub(crate) async fn deployment(&self, name: &str) -> Result<PdDeployment> {
        self.get(name).await
    }

    /// Objects with a label.
    pub(crate) async fn labelled<K>(&self, label: &str, value: &str) -> Result<Vec<K>>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
        K: Clone + Debug + DeserializeOwned,
    {
        let params = ListParams::default().labels(&format!("{label}={value}"));
        let list = self.api::<K>().list(&params).await;
        let list = list.map_err(|error| self.failed::<K>("list", "objects", &error))?;
        Ok(list.items)
    }

    /// Why something could not be done to an object.
    pub(crate) fn failed<K>(&self, verb: &str, name: &str, error: &kube::Error) -> anyhow::Error
    where
        K: Resource<DynamicType = ()>,
    {
        let (kind, namespace) = (K::kind(&()), &self.namespace);
        let hint = if is(error, Status::is_not_found) {
            let plural = K::plural(&());
            format!("; `kubectl get {plural} --all-namespaces` lists what there is")
        } else if is(error, Status::is_conflict) {
            "; it was changed meanwhile: look again, and repeat".to_owned()
        } else {
            String::new()
        };
        anyhow!(
            "cannot {verb} {kind} {name} in namespace {namespace}: {}{hint}",
            message_of(error)
        )
    }
}

pub(crate) fn patch_params() -> PatchParams {
    PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

/// An error with its causes, each once; of the apiserver only what it said.
pub(crate) fn message_of(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        status.message.clone()
    } else {
        with_causes(error)
    }
}

fn is(error: &kube::Error, reason: impl Fn(&Status) -> bool) -> bool {
    matches!(error, kube::Error::Api(status) if reason(status))
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    for cause in causes.map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

fn unusable(error: &dyn std::error::Error) -> anyhow::Error {
    anyhow!(
        "no cluster to talk to: {}; set KUBECONFIG, or give --context",
        with_causes(error)
    )
}
