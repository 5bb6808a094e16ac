//! SGLang's flags that change no answer here: what they ask for is always on, or they tune, monitor
//! or report something that this program does in its own way or lacks.

use super::{Group, Meaning};

pub(super) const GROUPS: &[Group] = &[
    Group {
        meaning: Meaning::Always("metrics are always served"),
        flags: "enable-metrics",
    },
    Group {
        meaning: Meaning::Always("cached tokens are always reported"),
        flags: "enable-cache-report",
    },
    Group {
        meaning: Meaning::Always("decode always keeps a retracted request's KV in host memory"),
        flags: "disaggregation-decode-enable-offload-kvcache",
    },
    Group {
        meaning: Meaning::Always(
            "decode always caches prefixes, unless --disable-radix-cache is set",
        ),
        flags: "disaggregation-decode-enable-radix-cache",
    },
    Group {
        meaning: Meaning::WithoutEffect("code in the model's folder is never run"),
        flags: "trust-remote-code",
    },
    Group {
        meaning: Meaning::WithoutEffect("there is no warm-up request"),
        flags: "skip-server-warmup warmups=",
    },
    Group {
        meaning: Meaning::WithoutEffect("kernels are chosen at start"),
        flags: "attention-backend= decode-attention-backend= prefill-attention-backend= \
                sampling-backend= fp8-gemm-backend= fp4-gemm-backend= fp8-gemm-runner-backend= \
                fp4-gemm-runner-backend= bf16-gemm-backend= enable-lean-attention \
                enable-nvidia-megakernel enable-amd-monokernel monokernel-backend= \
                prefill-kv-cache-dequant-dtype= disable-flashinfer-autotune \
                flashinfer-autotune-skip-ops=* triton-attention-reduce-in-fp32 \
                triton-attention-num-kv-splits= triton-attention-split-tile-size= \
                flashinfer-mla-disable-ragged enable-fused-qk-norm-rope \
                no-enable-fused-qk-norm-rope enable-fp32-lm-head enable-tf32-matmul \
                no-enable-tf32-matmul enable-torch-compile enable-torch-compile-debug-mode \
                torch-compile-max-bs= disable-chunked-prefix-cache enable-flashinfer-mla \
                disable-mla enable-precise-embedding-interpolation mlx-enable-sampling",
    },
    Group {
        meaning: Meaning::WithoutEffect(
            "decode steps are captured when their batch size first repeats",
        ),
        flags: "cuda-graph-bs=* cuda-graph-bs-decode=* cuda-graph-bs-prefill=* cuda-graph-config= \
                cuda-graph-backend-decode= cuda-graph-backend-prefill= cuda-graph-max-bs-prefill= \
                cuda-graph-max-seq-len-prefill= cuda-graph-prefill-max-context= context-bucket= \
                disable-prefill-cuda-graph disable-piecewise-cuda-graph enable-piecewise-cuda-graph \
                disable-cuda-graph-padding enable-profile-cuda-graph enable-cudagraph-gc \
                debug-cuda-graph",
    },
    Group {
        meaning: Meaning::WithoutEffect(
            "requests are computed in order of arrival, prompt chunks alongside decode \
             steps",
        ),
        flags: "schedule-policy= enable-priority-scheduling disable-priority-preemption \
                default-priority-value= abort-on-priority-when-disabled \
                schedule-low-priority-values-first priority-scheduling-preemption-threshold= \
                retraction-policy= enable-dynamic-chunking prefill-decode-interval= \
                prefill-decode-interval-min-bs= prefill-max-requests= num-continuous-decode-steps= \
                scheduler-recv-interval= enable-mixed-chunk enable-prefill-delayer \
                prefill-delayer-max-delay-passes= prefill-delayer-token-usage-low-watermark= \
                prefill-delayer-forward-passes-buckets=* prefill-delayer-wait-seconds-buckets=* \
                prefill-delayer-queue-min-ratio= prefill-delayer-max-delay-ms= min-free-slots-delay= \
                enable-two-batch-overlap enable-single-batch-overlap \
                tbo-token-distribution-threshold= disaggregation-decode-allocation-policy= \
                disaggregation-decode-retraction-backup= \
                disaggregation-decode-host-receive-threshold= optimistic-prefill-attempts= \
                enable-mis",
    },
    Group {
        meaning: Meaning::WithoutEffect(
            "prefixes are cached in the device's KV pool only, evicted least recently used first",
        ),
        flags: "radix-eviction-policy= radix-eviction-policy-config= radix-cache-backend= \
                enable-session-radix-cache enable-hierarchical-cache enable-hicache \
                hicache-host-memory-mode= hicache-ratio= hicache-size= \
                hicache-host-memory-fraction= hicache-write-policy= \
                hicache-io-backend= hicache-mem-layout= hicache-storage-backend= \
                hicache-storage-prefetch-policy= hicache-storage-backend-extra-config= \
                hicache-storage-prefetch-retry-poll-interval= \
                hicache-storage-prefetch-retry-max-attempts= enable-unified-cache-external-linker \
                unified-cache-external-linker-backend= unified-cache-external-linker-config= \
                enable-linker-mla-dedup enable-lmcache lmcache-config-file= enable-flexkv \
                flexkv-config-file= strip-thinking-cache prefill-only-disable-kv-cache",
    },
    Group {
        meaning: Meaning::WithoutEffect("a worker has one rank and at most one GPU"),
        flags: "dist-init-addr= nccl-init-addr= nccl-port= dist-timeout= gated-launch-port= \
                gpu-id-step= pp-max-micro-batch-size= max-micro-batch-size= pp-async-batch-depth= \
                load-balance-method= enable-dp-attention enable-dp-lm-head dcp-comm-backend= \
                dcp-replicate-q-proj no-dcp-replicate-q-proj enable-prefill-cp cp-strategy= \
                enable-dsa-cache-layer-split enable-cp-decode-attn-tp enable-kv-cache-sharding \
                enable-dp-attention-local-control-broadcast enable-tp-lm-head-all-to-all \
                no-enable-tp-lm-head-all-to-all enable-attn-tp-input-scattered \
                enable-shared-experts-attn-tp shared-experts-tp-size= enable-dense-mlp-attn-tp \
                enable-layernorm-sp enable-megamoe-for-layernorm-sp disable-attn-tp-gather \
                enable-p2p-check enable-nccl-nvls enable-symm-mem disable-custom-all-reduce \
                enable-mscclpp enable-torch-symm-mem enable-scattered-sconv pre-warm-nccl \
                boundary-reduction= enable-quant-communications \
                enable-flashinfer-allreduce-fusion enforce-disable-flashinfer-allreduce-fusion \
                flashinfer-allreduce-fusion-backend= enable-aiter-allreduce-fusion \
                disable-aiter-allreduce-fusion-in-prefill disable-aiter-allreduce-fusion-in-decode \
                use-ray",
    },
    Group {
        meaning: Meaning::WithoutEffect("mixture-of-experts models are not supported"),
        flags: "enable-ep-moe enable-deepep-moe enable-flashinfer-moe moe-dense-tp-size= \
                elastic-ep-join-rank-offset= elastic-ep-initial-size= max-ep-size= \
                enable-fused-moe-sum-all-reduce moe-a2a-backend= enable-w4a4-mxfp4-megamoe \
                deepep-v2-mode= moe-runner-backend= flashinfer-mxfp4-moe-precision= deepep-mode= \
                fuseep-mode= deepep-dispatcher-output-dtype= flashinfer-a2a-dispatch-type= \
                ep-num-redundant-experts= ep-dispatch-algorithm= init-expert-location= enable-eplb \
                eplb-algorithm= eplb-rebalance-num-iterations= eplb-rebalance-layers-per-chunk= \
                eplb-min-rebalancing-utilization-threshold= expert-distribution-recorder-mode= \
                expert-distribution-recorder-buffer-size= enable-expert-distribution-metrics \
                expert-balancedness-report-mode= deepep-config= elastic-ep-backend= \
                enable-elastic-expert-backup mooncake-ib-device= enable-waterfill \
                elastic-ep-join-mode= elastic-ep-scale-timeout= \
                disable-flashinfer-cutlass-moe-fp4-allgather disable-shared-experts-fusion \
                enforce-shared-experts-fusion paged-experts-num-resident= kt-method= kt-cpuinfer= \
                kt-threadpool-count= kt-num-gpu-experts= kt-max-deferred-experts-per-token=",
    },
    Group {
        meaning: Meaning::WithoutEffect(
            "kernels and caches of other kinds of layers are not chosen by flags here",
        ),
        flags: "qsa-indexer-dtype= dsa-prefill-backend= dsv4-prefill-backend= dsa-triton-union= \
                dsa-decode-backend= dsv4-attn-backend= dsa-paged-mqa-logits-backend= \
                dsa-topk-backend= nsa-prefill-backend= nsa-decode-backend= \
                enable-deepseek-v4-fp4-indexer enable-dsa-fused-indexer no-enable-dsa-fused-indexer \
                mamba-backend= mamba-ssm-dtype= mamba-max-states-per-path= \
                enable-mamba-cache-stochastic-rounding mamba-cache-philox-rounds= \
                mamba-radix-cache-strategy= mamba-scheduler-strategy= mamba-track-interval= \
                enable-int8-mamba-checkpoint int8-mamba-ckpt-size= linear-attn-backend= \
                linear-attn-decode-backend= linear-attn-prefill-backend= linear-attn-verify-backend= \
                enable-linear-replayssm linear-replayssm-cache-len= enable-linear-replayssm-spec \
                c128-page-size= \
                swa-prefix-tails= disable-hybrid-swa-memory \
                enable-encoder-swa-bounded-replay enable-decoder-swa-bounded-replay \
                no-enable-decoder-swa-bounded-replay enable-page-major-kv-layout \
                enable-unified-memory hisparse-config= hierarchical-sparse-attention-extra-config= \
                ple-offload-embedding no-ple-offload-embedding ple-offload-backend= \
                ple-offload-dir= offload-group-size= offload-num-in-group= offload-prefetch-step= \
                offload-mode=",
    },
    Group {
        meaning: Meaning::WithoutEffect("supported models read text only"),
        flags: "language-model-only enable-multimodal mm-attention-backend= \
                enable-broadcast-mm-inputs-process enable-prefix-mm-cache mm-enable-dp-encoder \
                no-mm-enable-dp-encoder mm-process-config= mm-processor-worker-num= \
                mm-io-worker-num= allowed-media-domains=* media-url-max-file-size-mb= \
                mm-preprocess-cache-size-mb= trust-mm-content-hashes limit-mm-data-per-request= \
                enable-mm-global-cache image-processor-backend= mm-global-cache-backend= \
                disable-fast-image-processor mm-feature-transport= encoder-transfer-backend= \
                encoder-urls=* encoder-bootstrap-port= encoder-register-urls=* \
                enable-adaptive-dispatch-to-encoder asr-max-buffer-seconds= \
                asr-max-concurrent-sessions=",
    },
    Group {
        meaning: Meaning::WithoutEffect(
            "drafts are chains of the request's own n-grams or of one model",
        ),
        flags: "uno-lora-path= speculative-draft-model-revision= speculative-draft-load-format= \
                speculative-dflash-block-size= speculative-domino-candidate-pool-size= \
                speculative-dspark-block-size= speculative-dspark-sps-table-path= \
                speculative-dspark-confidence-sts-path= \
                speculative-dspark-align-verify-tokens-to-graph-tier \
                speculative-accept-threshold-single= speculative-accept-threshold-acc= \
                speculative-use-rejection-sampling speculative-use-block-verification \
                speculative-token-map= speculative-attention-mode= \
                speculative-draft-attention-backend= speculative-dsa-topk-backend= \
                speculative-draft-kv-cache-dtype= speculative-draft-window-size= \
                speculative-draft-sink-size= speculative-moe-runner-backend= \
                speculative-moe-a2a-backend= speculative-enable-w4a4-mxfp4-megamoe \
                no-speculative-enable-w4a4-mxfp4-megamoe speculative-draft-model-quantization= \
                enable-multi-layer-eagle speculative-adaptive speculative-adaptive-config= \
                spec-trace-dir= speculative-ngram-min-bfs-breadth= \
                speculative-ngram-max-bfs-breadth= speculative-ngram-match-type= \
                speculative-ngram-max-trie-depth= speculative-ngram-capacity= \
                speculative-ngram-external-corpus-path= speculative-ngram-external-sam-budget= \
                speculative-ngram-external-corpus-max-tokens= decoupled-spec-bind-endpoint= \
                decoupled-spec-connect-endpoints= decoupled-spec-rank= decrypted-draft-config-file= \
                enable-draft-weights-cpu-backup dllm-algorithm-config= dllm-fdfo no-dllm-fdfo",
    },
    Group {
        meaning: Meaning::WithoutEffect("LoRA adapters are not supported"),
        flags: "enable-lora-overlap-loading max-lora-rank= lora-target-modules=* max-loaded-loras= \
                max-loras-per-batch= lora-eviction-policy= lora-backend= max-lora-chunk-size= \
                experts-shared-outer-loras no-experts-shared-outer-loras lora-use-virtual-experts \
                lora-strict-loading no-lora-strict-loading lora-drain-wait-threshold=",
    },
    Group {
        meaning: Meaning::WithoutEffect("a worker keeps its role, and its GPU to itself"),
        flags: "enable-pd-role-switch pdmux-config-path= sm-group-num=",
    },
    Group {
        meaning: Meaning::WithoutEffect("received KV is not checksummed"),
        flags: "disaggregation-enable-kv-checksum",
    },
    Group {
        meaning: Meaning::WithoutEffect(
            "weights are neither downloaded nor converted: files are mapped in place",
        ),
        flags: "download-dir= model-loader-extra-config= startup-weight-load-mode= \
                custom-weight-loader=* weight-loader-disable-mmap \
                weight-loader-prefetch-checkpoints weight-loader-prefetch-num-threads= \
                weight-loader-drop-cache-after-load remote-instance-weight-loader-seed-instance-ip= \
                remote-instance-weight-loader-seed-instance-service-port= \
                remote-instance-weight-loader-send-weights-group-ports= \
                remote-instance-weight-loader-backend= \
                remote-instance-weight-loader-start-seed-via-transfer-engine \
                engine-info-bootstrap-port= modelexpress-config= delete-ckpt-after-loading \
                weight-cache-mode= weight-cache-socket= weight-cache-timeout= rl-quant-profile= \
                modelopt-checkpoint-save-path= modelopt-export-path= enable-weights-cpu-backup",
    },
    Group {
        meaning: Meaning::WithoutEffect("grammars are not supported"),
        flags: "grammar-backend= constrained-json-whitespace-pattern= \
                constrained-json-disable-any-whitespace constrained-json-max-whitespace-cnt= \
                disable-outlines-disk-cache disable-disk-cache",
    },
    Group {
        meaning: Meaning::WithoutEffect("--log-level sets the log, which holds no request's text"),
        flags: "log-level-http= log-requests log-requests-level= log-requests-format= \
                log-requests-target=* uvicorn-access-log-exclude-prefixes=* crash-dump-folder= \
                show-time-cost decode-log-interval= enable-request-time-stats-logging \
                gc-warning-threshold-secs=",
    },
    Group {
        meaning: Meaning::WithoutEffect(
            "measurements are in /metrics and the admin API's timelines",
        ),
        flags: "enable-mfu-metrics enable-metrics-for-all-schedulers \
                load-snapshot-publish-interval= tokenizer-metrics-custom-labels-header= \
                tokenizer-metrics-allowed-custom-labels=* extra-metric-labels= \
                bucket-time-to-first-token=* bucket-inter-token-latency=* \
                bucket-e2e-request-latency=* collect-tokens-histogram prompt-tokens-buckets=* \
                generation-tokens-buckets=* kv-events-config= load-publish-endpoint= \
                enable-forward-pass-metrics forward-pass-metrics-worker-id= \
                forward-pass-metrics-ipc-name= export-metrics-to-file export-metrics-to-file-dir= \
                enable-layerwise-nvtx-marker",
    },
    Group {
        meaning: Meaning::WithoutEffect(
            "requests are traced where --otlp-traces-endpoint says so, as pdserve-agent",
        ),
        flags: "enable-trace trace-modules= otlp-service-name=",
    },
    Group {
        meaning: Meaning::WithoutEffect("debug dumps and checks are not supported"),
        flags: "kv-canary= kv-canary-sweep-interval= kv-canary-real-data= \
                debug-tensor-dump-output-folder= debug-tensor-dump-layers=* \
                debug-tensor-dump-input-file= msprobe-dump-config= watermark-config= \
                return-aux-hidden-state-layer-ids=* sampling-mask-max-tokens= enable-nan-detection",
    },
    Group {
        meaning: Meaning::WithoutEffect(
            "one process serves HTTP/1.1, with its own threads for text and connections",
        ),
        flags: "tokenizer-backend= tokenizer-worker-num= detokenizer-worker-num= \
                enable-dynamic-batch-tokenizer dynamic-batch-tokenizer-batch-size= \
                dynamic-batch-tokenizer-batch-timeout= enable-tokenizer-batch-encode \
                disable-tokenizer-batch-decode batch-notify-size= fastapi-root-path= \
                enable-http-worker-reuseport enable-http2 http2-max-concurrent-streams= \
                http2-initial-connection-window-size= grpc-response-timeout-secs= sidecar-args= \
                smg-http-sidecar-port= grpc-http-sidecar-port= numa-node=* gc-threshold=* \
                sleep-on-idle",
    },
    Group {
        meaning: Meaning::WithoutEffect("every token is its own event"),
        flags: "stream-interval=",
    },
    Group {
        meaning: Meaning::WithoutEffect(
            "no step waits for another process, so there is no watchdog",
        ),
        flags: "watchdog-timeout= soft-watchdog-timeout=",
    },
    Group {
        meaning: Meaning::WithoutEffect("this API is not supported"),
        flags: "enable-response-store tool-server= enable-streaming-session file-storage-path= \
                trust-request-chat-template",
    },
];
