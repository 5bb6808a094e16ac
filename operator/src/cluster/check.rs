//! The answer for `helm test`: has the operator come up whole?

use super::run::LEASE;
use super::watches::api;
use crate::http_client::HttpClient;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::ListParams;
use kube::{Api, Client};
use pd_crds::{PdDeployment, PdPool};
use pd_identity::Peers;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// An operator that has just been installed takes its Lease and lists within this.
const COMES_UP_WITHIN: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_secs(1);
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// A Lease that was not renewed for longer has no holder.
const RENEWED_WITHIN: SignedDuration = SignedDuration::from_secs(15);

#[derive(Debug, thiserror::Error)]
pub(crate) enum CheckError {
    #[error("no cluster to talk to: {0}")]
    NoCluster(#[source] Box<kube::Error>),
    #[error("cannot list {kind}: {source}")]
    CannotList {
        kind: &'static str,
        source: Box<kube::Error>,
    },
    #[error("no operator leads: {0}")]
    NoLeader(String),
    #[error("the operator does not answer behind Service {service}: {why}; see its pods' logs")]
    NotReady { service: String, why: String },
}

/// Whether our kinds are served, a replica leads and, if given, the operator's Service answers.
pub(crate) async fn install(
    namespace: Option<&str>,
    operator: Option<&str>,
) -> Result<String, CheckError> {
    let client = connect().await?;
    let one = ListParams::default().limit(1);
    let cannot = |kind| {
        move |source| CheckError::CannotList {
            kind,
            source: Box::new(source),
        }
    };
    let deployments: Api<PdDeployment> = api(&client, namespace);
    let listed = deployments.list_metadata(&one).await;
    listed.map_err(cannot("PDDeployments"))?;
    let pools: Api<PdPool> = api(&client, namespace);
    let listed = pools.list_metadata(&one).await;
    listed.map_err(cannot("PDPools"))?;
    let began = Instant::now();
    loop {
        match leads_and_answers(&client, operator).await {
            Ok(holder) => return Ok(format!("the kinds are served; {holder} leads")),
            Err(error) if began.elapsed() > COMES_UP_WITHIN => return Err(error),
            Err(_) => sleep(POLL_INTERVAL).await,
        }
    }
}

async fn leads_and_answers(client: &Client, operator: Option<&str>) -> Result<String, CheckError> {
    let own = std::env::var("POD_NAMESPACE").ok();
    let own = own.unwrap_or_else(|| client.default_namespace().to_owned());
    let leases: Api<Lease> = api(client, Some(&own));
    let lease = leases
        .get(LEASE)
        .await
        .map_err(|error| CheckError::NoLeader(error.to_string()))?;
    let spec = lease.spec.unwrap_or_default();
    let renewed = spec.renew_time.map(|time| time.0);
    let is_fresh =
        renewed.is_some_and(|renewed| Timestamp::now().duration_since(renewed) < RENEWED_WITHIN);
    let holder = spec.holder_identity.filter(|_| is_fresh);
    let holder = holder.ok_or_else(|| {
        CheckError::NoLeader(format!("no operator renewed the Lease {LEASE} in time"))
    })?;
    if let Some(service) = operator {
        answers(client, &own, service)
            .await
            .map_err(|why| CheckError::NotReady {
                service: service.to_owned(),
                why,
            })?;
    }
    Ok(holder)
}

/// By the Service's address, not its name: what is checked is the operator, not the cluster's DNS.
async fn answers(client: &Client, namespace: &str, service: &str) -> Result<(), String> {
    let services: Api<Service> = api(client, Some(namespace));
    let found = services.get(service).await;
    let spec = found.map_err(|error| error.to_string())?.spec;
    let spec = spec.unwrap_or_default();
    let ip = spec.cluster_ip.as_deref().and_then(|ip| ip.parse().ok());
    let ip: IpAddr = ip.ok_or("it has no address")?;
    let port = spec.ports.iter().flatten().next().map(|port| port.port);
    let port = port.and_then(|port| u16::try_from(port).ok());
    let url = format!("http://{}/readyz", SocketAddr::new(ip, port.unwrap_or(80)));
    let http = HttpClient::new(String::new(), Peers::Plain);
    if http.probe(&url, ANSWER_LIMIT).await {
        Ok(())
    } else {
        Err(format!("no answer from {url}"))
    }
}

async fn connect() -> Result<Client, CheckError> {
    let client = Client::try_default().await;
    client.map_err(|error| CheckError::NoCluster(Box::new(error)))
}
