//! What becomes of each flag.

use super::{Group, Meaning};

pub(super) const GROUPS: &[Group] = &[
    Group {
        meaning: Meaning::WithoutEffect(
            "it tunes cache_aware, which serves as least_loaded in this version",
        ),
        flags: "cache-threshold= balance-abs-threshold= balance-rel-threshold= \
                eviction-interval= eviction-interval-secs= max-tree-size=",
    },
    Group {
        meaning: Meaning::WithoutEffect("it tunes a policy that is not here"),
        flags: "bucket-adjust-interval-secs= max-idle-secs= assignment-mode=",
    },
    Group {
        meaning: Meaning::WithoutEffect(
            "workers hold the tokenizer; the router passes requests on as they are",
        ),
        flags: "model-path= tokenizer-path= tokenizer-cache-enable-l0 \
                tokenizer-cache-l0-max-entries= tokenizer-cache-enable-l1 \
                tokenizer-cache-l1-max-memory=",
    },
    Group {
        meaning: Meaning::WithoutEffect("each worker spreads requests over its own ranks"),
        flags: "dp-aware",
    },
    Group {
        meaning: Meaning::WithoutEffect(
            "one router always serves several models, and the admin API adds workers",
        ),
        flags: "enable-igw",
    },
    Group {
        meaning: Meaning::WithoutEffect("there is one router, for tests and for service"),
        flags: "mini-lb",
    },
    Group {
        meaning: Meaning::WithoutEffect("the log goes to stderr"),
        flags: "log-dir=",
    },
    Group {
        meaning: Meaning::WithoutEffect("the buckets of histograms are fixed"),
        flags: "prometheus-duration-buckets=*",
    },
    Group {
        meaning: Meaning::WithoutEffect(
            "workers are always probed; name another path with --health-check-endpoint",
        ),
        flags: "disable-health-check",
    },
    Group {
        meaning: Meaning::WithoutEffect("requests are traced where --otlp-traces-endpoint says so"),
        flags: "enable-trace",
    },
    Group {
        meaning: Meaning::Refused(
            "the router bounds requests in flight, not requests per second; set \
             --max-concurrent-requests instead",
        ),
        flags: "rate-limit-tokens-per-second=",
    },
    Group {
        meaning: Meaning::Refused(
            "answers pass as workers made them; give it to the workers and leave it out here",
        ),
        flags: "chat-template= reasoning-parser= tool-call-parser=",
    },
    Group {
        meaning: Meaning::Only {
            values: &["sglang"],
            instead: "workers speak SGLang's API; leave it out",
        },
        flags: "backend=",
    },
    Group {
        meaning: Meaning::Only {
            values: &["memory", "none"],
            instead: "there is no Responses API, so no conversation is kept; leave it out",
        },
        flags: "history-backend=",
    },
    Group {
        meaning: Meaning::Refused(
            "there is no Responses API, so nothing is stored and no MCP server is called; leave it \
             out",
        ),
        flags: "mcp-config-path= oracle-wallet-path= oracle-tns-alias= oracle-connect-descriptor= \
                oracle-username= oracle-password= oracle-pool-min= oracle-pool-max= \
                oracle-pool-timeout-secs= postgres-db-url= postgres-pool-max= redis-url= \
                redis-pool-max= redis-retention-days=",
    },
    Group {
        meaning: Meaning::Refused(
            "workers are reached over plain HTTP; leave it out, and keep the network between router \
             and workers to yourself",
        ),
        flags: "client-cert-path= client-key-path= ca-cert-paths=*",
    },
    Group {
        meaning: Meaning::Refused(
            "the admin API opens to one token, in the environment variable PDSERVE_ADMIN_TOKEN; set \
             that and leave it out",
        ),
        flags: "control-plane-api-keys=* control-plane-audit-enabled jwt-issuer= jwt-audience= \
                jwt-jwks-uri= jwt-role-mapping=*",
    },
];
