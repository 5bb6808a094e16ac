//! Counters, gauges and histograms of one engine, in Prometheus text. Names are SGLang's (seed 000
//! §15.1 and `/metrics`) with the prefix `pdserve_`.

use prometheus::{Encoder, Registry, TextEncoder};

/// The registry is the engine's own, so that several engines of a process do not mix.
#[derive(Clone, Debug)]
pub struct EngineMetrics {
    registry: Registry,
}

// === impl EngineMetrics ===

impl EngineMetrics {
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Prometheus text, version 0.0.4.
    pub fn encode(&self) -> String {
        let mut text = Vec::new();
        TextEncoder::new()
            .encode(&self.registry.gather(), &mut text)
            .expect("registered metrics can be written to memory");
        String::from_utf8(text).expect("the text format is UTF-8")
    }
}
