//! Which flags may be combined. Pure: reports every broken rule and repairs none.

use super::speculative::Algorithm;
use super::{Args, sglang, speculative};
use pd_protocol::Role;
use pd_protocol::secret::SecretError;
use pd_protocol::{Secret, labels};

/// Page sizes that attention's blocks of 64 keys can be cut into.
const PAGE_SIZES: std::ops::RangeInclusive<u32> = 1..=64;

/// A rule that the command line breaks: what is wrong, and what to do.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(crate) enum ArgError {
    #[error("{flags}: {instead}")]
    Refused {
        flags: String,
        instead: &'static str,
    },
    #[error(
        "{flag} belongs to --disaggregation-mode prefill, which must know how decode shards its KV \
         heads; the mode here is {mode}, so remove it"
    )]
    OnlyOnPrefill {
        flag: &'static str,
        mode: &'static str,
    },
    #[error("--page-size {0}: use a power of two up to 64")]
    PageSize(u32),
    #[error(
        "--chunked-prefill-size {chunk} is not a multiple of --page-size {page}, so a chunk would end \
         inside a page; use a multiple, or -1 to compute prompts whole"
    )]
    ChunkSize { chunk: i64, page: u32 },
    #[error("--max-total-tokens {tokens} is less than one page of {page} tokens")]
    PoolSize { tokens: u32, page: u32 },
    #[error("{flag} {value}: use a number {range}")]
    Fraction {
        flag: &'static str,
        value: f64,
        range: &'static str,
    },
    #[error(
        "{flag} {value}: nothing is drafted without --speculative-algorithm; add it, or omit {flag}"
    )]
    NoAlgorithm { flag: &'static str, value: u32 },
    #[error(
        "--speculative-num-steps is {steps} and --speculative-num-draft-tokens {tokens}, which must be one more, since a step \
         computes the token before the drafts, too; give one of the two"
    )]
    DraftTokens { steps: u32, tokens: u32 },
    #[error("--speculative-algorithm STANDALONE needs --speculative-draft-model-path; add it")]
    NoDraftModel,
    #[error(
        "--speculative-draft-model-path: a model drafts with --speculative-algorithm STANDALONE; set that, or omit the path"
    )]
    NoUseForDraftModel,
    #[error("{flag} {value}: use a number {range}")]
    Drafts {
        flag: &'static str,
        value: u32,
        range: &'static str,
    },
    #[error("--port {0} leaves no admin port 900 above it; set --admin-port")]
    NoAdminPort(u16),
    #[error("{first} and {second} are both {port} on one address; set another for one of them")]
    SamePort {
        first: &'static str,
        second: &'static str,
        port: u16,
    },
    #[error("--{flag} is empty; omit it or give a name")]
    Empty { flag: &'static str },
    #[error(
        "the value of {flag}, or of {env}, is not a usable secret: {source}; omit it or give another"
    )]
    Secret {
        flag: &'static str,
        env: &'static str,
        source: SecretError,
    },
}

// === impl Args ===

impl Args {
    /// Every rule that these flags break, in the order of the help text.
    pub(crate) fn broken_rules(&self) -> Vec<ArgError> {
        let mut broken = Vec::new();
        self.sglang.refuse(&mut broken);
        self.check_model(&mut broken);
        self.check_ports(&mut broken);
        self.check_secrets(&mut broken);
        self.check_schedule(&mut broken);
        self.check_speculative(&mut broken);
        self.check_disaggregation(&mut broken);
        broken
    }

    fn check_model(&self, broken: &mut Vec<ArgError>) {
        if self.model.served_model_name.as_deref() == Some("") {
            broken.push(ArgError::Empty {
                flag: "served-model-name",
            });
        }
    }

    fn check_ports(&self, broken: &mut Vec<ArgError>) {
        let Some(admin) = self.server.admin_port() else {
            broken.push(ArgError::NoAdminPort(self.server.port));
            return;
        };
        let mut ports = vec![("--port", self.server.port), ("--admin-port", admin)];
        if self.disaggregation.role == Role::Prefill {
            let bootstrap = self.disaggregation.transfer.bootstrap_port;
            ports.push(("--disaggregation-bootstrap-port", bootstrap));
        }
        for (i, &(first, port)) in ports.iter().enumerate() {
            let twin = ports[i + 1..].iter().find(|(_, other)| *other == port);
            if let Some(&(second, _)) = twin.filter(|_| port != 0) {
                broken.push(ArgError::SamePort {
                    first,
                    second,
                    port,
                });
            }
        }
    }

    /// Not done while parsing, because clap prints the value that it refuses.
    fn check_secrets(&self, broken: &mut Vec<ArgError>) {
        let secrets = [
            ("--api-key", labels::ENV_API_KEY, &self.server.api_key),
            (
                "--admin-token",
                labels::ENV_ADMIN_TOKEN,
                &self.server.admin_token,
            ),
        ];
        for (flag, env, secret) in secrets {
            if let Some(Err(source)) = secret.as_ref().map(Secret::check) {
                broken.push(ArgError::Secret { flag, env, source });
            }
        }
    }

    fn check_schedule(&self, broken: &mut Vec<ArgError>) {
        let page = self.schedule.page_size;
        if !PAGE_SIZES.contains(&page) || !page.is_power_of_two() {
            broken.push(ArgError::PageSize(page));
        } else if let Some(chunk) = self.schedule.chunked_prefill_size
            && !chunk_fits(chunk, page)
        {
            broken.push(ArgError::ChunkSize { chunk, page });
        }
        if let Some(tokens) = self.schedule.max_total_tokens.filter(|&t| t < page) {
            broken.push(ArgError::PoolSize { tokens, page });
        }
        if let Some(value) = self.device.mem_fraction_static
            && !(value > 0.0 && value < 1.0)
        {
            let (flag, range) = ("--mem-fraction-static", "above 0 and below 1");
            broken.push(ArgError::Fraction { flag, value, range });
        }
        let value = f64::from(self.schedule.schedule_conservativeness);
        if !(value.is_finite() && value > 0.0) {
            let (flag, range) = ("--schedule-conservativeness", "above 0");
            broken.push(ArgError::Fraction { flag, value, range });
        }
    }

    fn check_speculative(&self, broken: &mut Vec<ArgError>) {
        let args = &self.speculative;
        let drafts_by_model = args.speculative_algorithm == Some(Algorithm::Standalone);
        match &args.speculative_draft_model_path {
            None if drafts_by_model => broken.push(ArgError::NoDraftModel),
            Some(_) if !drafts_by_model => broken.push(ArgError::NoUseForDraftModel),
            _ => {}
        }
        if args.speculative_algorithm.is_none() {
            let given = args.given_numbers();
            broken.extend(given.map(|(flag, value)| ArgError::NoAlgorithm { flag, value }));
            return;
        }
        for (flag, value) in args.given_numbers() {
            let (numbers, range) = speculative::range(flag);
            if !numbers.contains(&value) {
                broken.push(ArgError::Drafts { flag, value, range });
            }
        }
        if let (Some(steps), Some(tokens)) = (
            args.speculative_num_steps,
            args.speculative_num_draft_tokens,
        ) && tokens.checked_sub(1) != Some(steps)
        {
            broken.push(ArgError::DraftTokens { steps, tokens });
        }
    }

    fn check_disaggregation(&self, broken: &mut Vec<ArgError>) {
        let disaggregation = &self.disaggregation;
        let mode = disaggregation.role;
        let sizes = [
            ("--disaggregation-decode-tp", disaggregation.decode_tp),
            ("--disaggregation-decode-dp", disaggregation.decode_dp),
        ];
        for (flag, value) in sizes {
            match (mode, value) {
                (Role::Prefill, Some(1)) => {}
                (Role::Prefill, Some(value)) => {
                    sglang::refuse(broken, format!("{flag} {value}"), sglang::ONE_RANK);
                }
                (Role::Unified | Role::Decode, Some(_)) => {
                    let mode = mode.as_str();
                    broken.push(ArgError::OnlyOnPrefill { flag, mode });
                }
                (_, None) => {}
            }
        }
        let value = disaggregation.test_failure_prob;
        if !(0.0..=1.0).contains(&value) {
            let (flag, range) = (labels::ENV_TEST_FAILURE_PROB, "in 0 to 1");
            broken.push(ArgError::Fraction { flag, value, range });
        }
    }
}

fn chunk_fits(chunk: i64, page: u32) -> bool {
    chunk == -1 || (chunk > 0 && u32::try_from(chunk).is_ok_and(|c| c.is_multiple_of(page)))
}
