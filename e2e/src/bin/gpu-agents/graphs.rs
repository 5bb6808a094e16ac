//! Part `graphs`: answers have the same bits whether decode steps are replayed as graphs or launched
//! kernel by kernel, and whether a step is launched before the one before it is known.

use crate::answers::equal_bits;
use crate::checks::Checks;
use crate::site::{Device, Site, TINY_DEEPSEEK_V3, TINY_GEMMA3, TINY_QWEN3, TINY_QWEN3_5_MOE};
use anyhow::{Result, ensure};
use pd_e2e::client::Client;
use pd_e2e::metrics::Metrics;
use pd_e2e::prompts::{constrained, ragged};
use serde_json::Value;

const TRIED: [(&str, &str); 5] = [
    (TINY_QWEN3, "bfloat16"),
    (TINY_QWEN3, "float32"),
    (TINY_GEMMA3, "bfloat16"),
    (TINY_QWEN3_5_MOE, "bfloat16"),
    (TINY_DEEPSEEK_V3, "bfloat16"),
];

/// How decode steps are launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Launches {
    /// Those that come again, as graphs.
    graphs: bool,
    /// Before the step before them is known.
    ahead: bool,
}

const DEFAULT: Launches = Launches {
    graphs: true,
    ahead: true,
};
const VARIANTS: [Launches; 3] = [
    Launches {
        graphs: false,
        ahead: true,
    },
    Launches {
        graphs: true,
        ahead: false,
    },
    Launches {
        graphs: false,
        ahead: false,
    },
];
/// What an agent says where the driver makes no graph, and nothing is shown.
const NO_GRAPH: &str = "could not capture a step as a graph";

impl Launches {
    fn flags(self) -> String {
        let flags = [
            (self.graphs, "--disable-cuda-graph"),
            (self.ahead, "--disable-overlap-schedule"),
        ];
        let off = flags.iter().filter(|(is_on, _)| !is_on);
        off.map(|(_, flag)| *flag).collect::<Vec<_>>().join(" ")
    }

    /// What the flags mean on the device: CPUs make no graphs, and nothing is won by launching ahead there.
    fn on(self, device: Device) -> Self {
        let is_cuda = device == Device::Cuda;
        Self {
            graphs: self.graphs && is_cuda,
            ahead: self.ahead && is_cuda,
        }
    }

    /// What an agent did.
    fn seen(metrics: &Metrics) -> Result<Self> {
        let count = |name: &str| {
            ensure!(metrics.has(name), "the agent has no {name}");
            Ok(metrics.sum(name, &[]) > 0.5)
        };
        Ok(Self {
            graphs: count("pdserve_num_graph_replays_total")?,
            ahead: count("pdserve_num_overlapped_steps_total")?,
        })
    }
}

pub(crate) async fn run(site: &Site, checks: &mut Checks) -> Result<()> {
    for (model, dtype) in TRIED {
        let name = format!("{model} {dtype}");
        let flags = format!("--dtype {dtype} --enable-deterministic-inference");
        let by_default = ask(site, model, &flags, DEFAULT);
        let Some(expected) = checks.expected(name.as_str(), by_default).await else {
            continue;
        };
        for variant in VARIANTS {
            let check = async {
                let got = ask(site, model, &flags, variant).await?;
                let tokens = equal_bits(&got, &expected)?;
                Ok(format!("{tokens} tokens and their log probabilities"))
            };
            checks
                .check(format!("{name} {}", variant.flags()), check)
                .await;
        }
    }
    Ok(())
}

/// Two rounds, so that steps come again; each batch shrinks as its answers end. Then answers that grammars hold.
async fn ask(site: &Site, model: &str, flags: &str, launches: Launches) -> Result<Vec<Value>> {
    let flags = format!("{flags} {}", launches.flags());
    let agent = site.alone(model, &flags).await?;
    let client = Client::new();
    let url = format!("{}/generate", agent.url());
    let mut answers = Vec::new();
    for lens in [[3, 17, 64, 90, 150, 260], [5, 18, 61, 95, 170, 250]] {
        let mut requests = ragged(&lens, 16);
        for (request, tokens) in requests.iter_mut().zip((16..).step_by(16)) {
            let params = &mut request["sampling_params"];
            params["max_new_tokens"] = Value::from(tokens);
            // Penalties end the lookahead: those that go on alone in the end have none.
            if tokens > 48 {
                params["repetition_penalty"] = Value::from(1.0);
            }
        }
        answers.extend(client.post_all(&url, &requests).await?);
    }
    let held = constrained(&[6, 20, 110, 230], 40);
    answers.extend(client.post_all(&url, &held).await?);
    let log = agent.process.log();
    ensure!(!log.contains(NO_GRAPH), "{log}");
    let seen = Launches::seen(&Metrics::scrape(&client, &agent.url()).await?)?;
    let wanted = launches.on(site.device);
    ensure!(
        seen == wanted,
        "steps were launched as {seen:?}, not as {wanted:?}"
    );
    Ok(answers)
}
