//! Where the processes of a deployment send spans: standard variables of OpenTelemetry's.

use super::pod;
use k8s_openapi::api::core::v1::EnvVar;
use pd_crds::PdDeploymentSpec;
use pd_crds::tracing::TracingSpec;
use pd_protocol::labels;

/// What decides of requests whose client has not.
const BY_RATIO: &str = "parentbased_traceidratio";

/// Variables of a container whose program sends spans.
pub(super) fn env(spec: &PdDeploymentSpec) -> impl Iterator<Item = EnvVar> {
    let of = |tracing: &TracingSpec| {
        let TracingSpec {
            otlp_endpoint,
            sampling_rate_per_million,
        } = tracing;
        let endpoint = pod::value_env(labels::ENV_TRACES_ENDPOINT, otlp_endpoint);
        let sampler = sampling_rate_per_million.map(|rate| {
            let ratio = (f64::from(rate) / 1e6).to_string();
            [
                pod::value_env(labels::ENV_TRACES_SAMPLER, BY_RATIO),
                pod::value_env(labels::ENV_TRACES_SAMPLER_ARG, &ratio),
            ]
        });
        std::iter::once(endpoint).chain(sampler.into_iter().flatten())
    };
    spec.tracing.as_ref().map(of).into_iter().flatten()
}
