//! SGLang's flags that change answers, memory or trust in a way that is not supported here. Each
//! group says why, and what to do.

use super::{Group, Meaning};

pub(super) const GROUPS: &[Group] = &[
    Group {
        meaning: Meaning::Only {
            values: "1",
            instead: super::ONE_RANK,
        },
        flags: "tp-size= tp= tensor-parallel-size= pp-size= pp= pipeline-parallel-size= dp-size= dp= \
                data-parallel-size= nnodes= ep-size= ep= expert-parallel-size= dcp-size= \
                decode-context-parallel-size= attn-dp-size= attention-data-parallel-size= \
                attn-cp-size= attention-context-parallel-size= moe-dp-size= moe-data-parallel-size= \
                dwdp-size= disaggregation-prefill-pp=",
    },
    Group {
        meaning: Meaning::Only {
            values: "0",
            instead: "there is one node, of rank 0; leave it out",
        },
        flags: "node-rank=",
    },
    Group {
        meaning: Meaning::Only {
            values: "auto safetensors gguf",
            instead: "weights are read from safetensors or GGUF files, as --model-path has them; \
                      leave it out",
        },
        flags: "load-format=",
    },
    Group {
        meaning: Meaning::Only {
            values: "gguf",
            instead: "weights are never quantised at start; give a quantised GGUF file, and leave it \
                      out",
        },
        flags: "quantization=",
    },
    Group {
        meaning: Meaning::Refused(
            "weights are never quantised at start; give a quantised GGUF file, and leave it out",
        ),
        flags: "quantization-param-path= modelopt-quant= modelopt-checkpoint-restore-path= \
                quantize-and-serve torchao-config= kt-weight-path=",
    },
    Group {
        meaning: Meaning::Only {
            values: "auto sglang hf",
            instead: "model code is built in; leave it out",
        },
        flags: "model-impl= model-config-parser=",
    },
    Group {
        meaning: Meaning::Only {
            values: "{}",
            instead: "the model's files are used unchanged; edit its config.json",
        },
        flags: "json-model-override-args=",
    },
    Group {
        meaning: Meaning::Refused(
            "the model's files are used unchanged; give the folder that holds what you want as \
             --model-path, and leave it out",
        ),
        flags: "decrypted-config-file= checkpoint-engine-wait-weights-before-ready \
                forward-hooks=",
    },
    Group {
        meaning: Meaning::Refused(
            "the model's files are not verified; verify them before the start, and leave it out",
        ),
        flags: "model-checksum=?",
    },
    Group {
        meaning: Meaning::Only {
            values: "default",
            instead: "the model's own template is used; give a Jinja file as --chat-template",
        },
        flags: "hf-chat-template-name=",
    },
    Group {
        meaning: Meaning::Refused(
            "prompts of /v1/completions reach the model unchanged; leave it out",
        ),
        flags: "completion-template=",
    },
    Group {
        meaning: Meaning::Refused(
            "a request sets its template's variables itself (chat_template_kwargs); leave it out",
        ),
        flags: "default-chat-template-kwargs=",
    },
    Group {
        meaning: Meaning::Refused(
            "only the model's generation_config.json sets defaults (--sampling-defaults); give each \
             request its own parameters, and leave it out",
        ),
        flags: "preferred-sampling-params=",
    },
    Group {
        meaning: Meaning::Only {
            values: "auto slow",
            instead: "the model's own tokenizer is used; leave it out",
        },
        flags: "tokenizer-mode=",
    },
    Group {
        meaning: Meaning::Refused("the tokenizer is always loaded; leave it out"),
        flags: "skip-tokenizer-init",
    },
    Group {
        meaning: Meaning::Refused("embeddings are not supported; leave it out"),
        flags: "is-embedding",
    },
    Group {
        meaning: Meaning::Refused(
            "LoRA adapters are not applied; serve weights that they are merged into, and leave it \
             out",
        ),
        flags: "enable-lora lora-paths=*",
    },
    Group {
        meaning: Meaning::Refused("diffusion models are not supported; leave it out"),
        flags: "dllm-algorithm=",
    },
    Group {
        meaning: Meaning::Only {
            values: "null",
            instead: "a worker drafts and verifies by itself; leave it out",
        },
        flags: "decoupled-spec-role=",
    },
    Group {
        meaning: Meaning::Refused(
            "prefill and decode share no GPU; start one worker with --disaggregation-mode prefill \
             and one with decode, and leave it out",
        ),
        flags: "enable-pdmux",
    },
    Group {
        meaning: Meaning::Refused(
            "supported models read text only, so there is no encoder; leave it out",
        ),
        flags: "encoder-only language-only",
    },
    Group {
        meaning: Meaning::Refused("attention always covers the full context; leave it out"),
        flags: "enable-hisparse",
    },
    Group {
        meaning: Meaning::Refused(
            "weights and KV pool stay in the device's memory; use a smaller model or a GGUF file, \
             and leave it out",
        ),
        flags: "enable-memory-saver enable-paged-experts",
    },
    Group {
        meaning: Meaning::Only {
            values: "0",
            instead: "weights and KV pool stay in the device's memory; use a smaller model or a GGUF \
                      file, and leave it out",
        },
        flags: "cpu-offload-gb=",
    },
    Group {
        meaning: Meaning::Refused(
            "logit processors and watermarks are not supported; leave it out",
        ),
        flags: "enable-custom-logit-processor enable-watermark",
    },
    Group {
        meaning: Meaning::Refused(
            "kernels do not match a training system's bit for bit; leave it out",
        ),
        flags: "rl-on-policy-target=",
    },
    Group {
        meaning: Meaning::Refused(
            "answers hold no hidden states, experts or ids beyond \
                                   output_ids of /generate; leave it out",
        ),
        flags: "enable-return-hidden-states return-hidden-states-mode= \
                enable-return-aux-hidden-states enable-return-routed-experts \
                enable-return-indexer-topk return-input-ids return-output-ids",
    },
    Group {
        meaning: Meaning::Refused(
            "reasoning is not treated differently from other text; leave it out",
        ),
        flags: "enable-strict-thinking",
    },
    Group {
        meaning: Meaning::Refused("a prompt that is too long is refused, never cut; leave it out"),
        flags: "allow-auto-truncate",
    },
    Group {
        meaning: Meaning::Refused(
            "each event of /generate carries the whole text so far, as SGLang's do without the \
             flag; leave it out",
        ),
        flags: "incremental-streaming-output stream-output",
    },
    Group {
        meaning: Meaning::Refused(
            "a request asks for usage itself (stream_options.include_usage); leave \
             it out",
        ),
        flags: "stream-response-default-include-usage",
    },
    Group {
        meaning: Meaning::Refused(
            "workers speak plain HTTP; give the certificate to pd-router (--tls-cert-path, \
             --tls-key-path), or to a proxy, and leave it out",
        ),
        flags: "ssl-keyfile= ssl-certfile= ssl-ca-certs= ssl-keyfile-password= enable-ssl-refresh",
    },
    Group {
        meaning: Meaning::Refused("this program speaks HTTP only; leave it out"),
        flags: "smg-grpc-mode grpc-mode grpc-port= sidecar=",
    },
    Group {
        meaning: Meaning::Refused("flags are read from the command line only; give them there"),
        flags: "config=",
    },
];
