# The only front door. `make` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

CACHE := $(CURDIR)/.cache
MODEL := $(CACHE)/models/SmolLM2-135M-Instruct.Q4_1.gguf
TARGET := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
RELEASE := $(TARGET)/release
BUNDLE := $(TARGET)/gpu-bundle
# CUDA=1: with the kernels, in every command below that compiles; images have them unless CUDA=0.
CUDA ?=
# LINTED=1: clippy compiles what tests compile, for a machine that does both (.ci/run).
LINTED ?=
NVCC = $(if $(filter 1,$(CUDA)),PDSERVE_NVCC=$$(scripts/cuda-toolkit.sh $(CACHE)))

# Cargo chooses the features of external crates by the packages that a command selects, so a selection of its own compiles
# them again. All commands select one of these; xtask's tidy tests hold that those of a profile agree.
KERNELS = $(if $(filter 1,$(CUDA)),--features pd-agent/cuda)
DEMO_SET = -p pd-agent -p pd-router -p pd-operator -p pd-hub -p pd-e2e $(KERNELS)
RELEASE_SET = $(DEMO_SET) -p pd-hub-server -p kubectl-pd -p pd-verbs --features pd-e2e/engines,pd-e2e/kube,pd-e2e/rdma
DEV_KERNELS = $(if $(filter 1,$(CUDA)),--features pd-agent/cuda --features pd-compute-proof/cuda --features pd-engine/cuda)
DEV_SET = --workspace --features pd-e2e/engines,pd-e2e/kube,pd-e2e/rdma $(DEV_KERNELS)
TESTS = $(NVCC) LINTED=$(LINTED) scripts/cargo-tests.sh

.PHONY: help
help: ## List the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# --- use it -------------------------------------------------------------------------------------

.PHONY: demo
demo: binaries $(if $(FAMILY),,model) ## Ask a real model through router, prefill and decode; draw the request's timeline; FAMILY=qwen3_5_moe asks a tiny one
	@$(RELEASE)/pd-demo --trace $(TARGET)/demo-trace.json $(if $(FAMILY),--model agent/engine/golden/tiny-$(subst _,-,$(FAMILY)),--deployment examples/smollm2.yaml --model $(MODEL))

.PHONY: serve
serve: binaries model ## The same deployment, left running; Ctrl-C drains and stops it
	@$(RELEASE)/pd-operator local -f examples/smollm2.yaml

.PHONY: kube-up
kube-up: kube image ## A Kubernetes with two nodes and our image to play with; stays until kube-down
	@$(RELEASE)/pd-kube up --gpus-per-node 2
	@$(RELEASE)/pd-kube import $(dir $(RELEASE))image/pdserve-*.tar

.PHONY: kube-down
kube-down: kube ## End it; nothing of it is left
	@$(RELEASE)/pd-kube down

# --- prove it -----------------------------------------------------------------------------------

.PHONY: test
test: rust cxx ## All default tests: no GPU, no cluster, no network
	@# What stands in for a worker in the operator's tests; with --examples cargo would build a test of it alone.
	$(TESTS) build $(DEV_SET) $(if $(LINTED),--all-targets,--example pd-stand-in)
	$(TESTS) test $(DEV_SET) --lib --bins --test it --test emulated

.PHONY: tidy
tidy: rust ## Format and tidy rules (words, links, imports, lengths)
	cargo fmt --all --check
	$(TESTS) test -q $(DEV_SET) --bin xtask

.PHONY: lint
lint: tidy cxx ## Tidy, and clippy without warnings
	PDSERVE_NVCC=$$(scripts/cuda-toolkit.sh $(CACHE)) scripts/cargo-tests.sh clippy --workspace --all-targets --all-features -- -D warnings

.PHONY: e2e
e2e: binaries model ## Processes on loopback: equality, faults, bad input, reconcile
	@# A fleet wants both cores, so one test at a time.
	$(TESTS) test $(DEV_SET) --test processes -- --test-threads=1 --nocapture

.PHONY: documents
documents: binaries model ## The commands of README, docs, charts and examples, as they stand
	$(TESTS) test $(DEV_SET) --test documents -- --nocapture

.PHONY: e2e-kube
e2e-kube: image kube plugin hub-server ## A real Kubernetes here (root, Go, containerd); ONLY="names" for a part
	@scripts/fetch-prometheus.sh $(CACHE) >/dev/null
	$(TESTS) test $(DEV_SET) --test kube -- --test-threads=1 --nocapture $(ONLY)

.PHONY: e2e-rdma
e2e-rdma: binaries ## Real verbs, and agents, between virtual hosts with Soft-RoCE: needs Debian's QEMU, fetches the rest once
	@$(NVCC) cargo build --release $(RELEASE_SET) --example rdma-ping
	$(TESTS) test $(DEV_SET) --test rdma -- --test-threads=1 --nocapture
	@# The declarations of libibverbs against the header that was fetched.
	@# Not by CPATH: crates with C code would be compiled again.
	PDSERVE_VERBS_INCLUDE=$(CACHE)/rdma/root/usr/include $(TESTS) test -q $(DEV_SET) --lib declarations -- --nocapture | grep -v '^$$\|running 0\| 0 passed'

.PHONY: e2e-engines
e2e-engines: ENGINES := $(or $(ENGINES),$(CACHE)/engines)
e2e-engines: binaries model hub-server ## One suite over pdserve, SGLang and vLLM as real processes: 18 GB once (ENGINES=FOLDER), ONLY="names" for a part
	@scripts/engines.sh $(ENGINES) $(MODEL)
	PDSERVE_ENGINES=$(ENGINES) $(TESTS) test $(DEV_SET) --test engines -- --test-threads=1 --nocapture $(ONLY)

.PHONY: simulate
simulate: rust ## A deployment in one deterministic process, with faults; SEEDS=10000, or SEED=n again with all that happens
	@scripts/cargo-tests.sh build -q --config simulation/profile.toml $(DEV_SET) --bin pd-simulation
	@$(TARGET)/tests/release/pd-simulation $(if $(SEED),--seed $(SEED) --trace,--seeds $(or $(SEEDS),10000))

.PHONY: coverage
coverage: rust ## Lines of the product that seeds of the simulation run, by folder; SEEDS=2500
	@scripts/coverage.sh $(or $(SEEDS),2500) $(TARGET)/coverage

.PHONY: planted
planted: rust ## Each fault of simulation/planted in a copy of the tree, which seeds must find; SEEDS=10000, ONLY="01 02" for some
	@scripts/planted.sh $(or $(SEEDS),10000) $(TARGET)/planted "$(ONLY)"

.PHONY: attacks
attacks: attackers ## Every attack at its full count on router and workers, as root in memory cgroups; ONLY="words" for some
	@$(RELEASE)/pd-attacks attacks $(ONLY)

.PHONY: strangers
strangers: attackers ## Frames without a key at all ports of a pair that has one, under a load; FRAMES=1000000
	@$(RELEASE)/pd-attacks strangers $(if $(FRAMES),--frames $(FRAMES))

.PHONY: soak
soak: attackers ## Two pairs under load while the attacks take turns; SECONDS=3600, WARM_UP=600
	@$(RELEASE)/pd-attacks soak --seconds $(SECONDS) --warm-up-seconds $(or $(WARM_UP),600)

.PHONY: soak-transfer
soak-transfer: rust ## Random requests and failures between pools of changing layouts; MINUTES=20
	@cargo run --release -q -p pd-kv-transfer --example soak -- --minutes $(or $(MINUTES),20)

.PHONY: fuzz
fuzz: rust cxx ## Every parser of untrusted bytes under libFuzzer; SECONDS=60 for each, ONLY="name" for a part, COVERAGE=0 for random changes instead
	@COVERAGE=$(COVERAGE) scripts/fuzz.sh $(or $(SECONDS),60) $(TARGET)/fuzz "$(ONLY)"

.PHONY: kube-tools
kube-tools: kube ## The programs of a cluster, built from Go modules once
	@$(RELEASE)/pd-kube tools

.PHONY: charts
charts: kube ## Helm charts, manifests, dashboards and alert rules against schemas and tests
	@scripts/charts.sh "$$($(RELEASE)/pd-kube tools)" $(CACHE)

.PHONY: clients
clients: binaries model ## Real clients and load tools, unmodified, against router and agent; ONLY="openai" for a part
	@scripts/clients/run.py $(RELEASE) $(MODEL) $(CACHE) $(ONLY)

.PHONY: fidelity
fidelity: rust model ## SmolLM2's tokens against transformers', ten prompts
	cargo run --release -p pd-engine --example fidelity -- $(MODEL)

.PHONY: cross-check
cross-check: rust cxx ## Every op and the golden models beside libtorch's; fetches torch once (544 MB)
	@torch=$$(scripts/libtorch.sh $(CACHE)); \
	export LIBTORCH=$$torch LD_LIBRARY_PATH=$$torch/lib$${LD_LIBRARY_PATH:+:$$LD_LIBRARY_PATH}; \
	scripts/cargo-tests.sh test -p pd-compute-proof --features tch --test tch -- --test-threads=1 --nocapture && \
	scripts/cargo-tests.sh test -p pd-engine --features tch --lib libtorch -- --nocapture

.PHONY: converted
converted: FOLDER = $(TARGET)/converted
converted: rust cxx ## GGUF files by llama.cpp's converter, beside llama.cpp: logits, tokens, texts (builds llama.cpp once)
	@scripts/converted.sh $(CACHE) $(FOLDER)
	PDSERVE_CONVERTED_DIR=$(FOLDER) scripts/cargo-tests.sh test -q -p pd-engine --lib converted -- --nocapture

.PHONY: templates
templates: PROMPTS = $(TARGET)/templates.json
templates: rust cxx ## Chat templates of published models: prompts beside transformers' (builds llama.cpp once)
	@scripts/templates.sh $(CACHE) $(PROMPTS)
	PDSERVE_TEMPLATES=$(abspath $(PROMPTS)) scripts/cargo-tests.sh test -q -p pd-engine --lib published_templates -- --nocapture
	PDSERVE_TEMPLATES=$(abspath $(PROMPTS)) scripts/cargo-tests.sh test -q -p pd-answers --lib published_templates -- --nocapture

.PHONY: peers-answers
peers-answers: rust ## What pd-answers reads in answers beside SGLang's and vLLM's parsers (vLLM is 6 GB once)
	@scripts/cargo-tests.sh build -q -p pd-answers --example take-apart
	@scripts/peers-answers.sh $(CACHE) $(TARGET)/tests/release/examples/take-apart

.PHONY: trace-viewers
trace-viewers: demo ## The demo's trace in Chromium's tracing page and in Perfetto's (chromium, npm, PyPI): what they show is what it has
	@scripts/trace-viewers.py $(TARGET)/demo-trace.json $(CACHE)

.PHONY: schemas-suite
schemas-suite: rust cxx ## Grammars beside the JSON-Schema-Test-Suite: what of each keyword is enforced or refused; fetches it once
	@suite=$$(scripts/schemas-suite.sh $(CACHE)) && PDSERVE_SCHEMA_SUITE=$$suite \
	    scripts/cargo-tests.sh test -q -p pd-engine --lib schemas_of_the_suite -- --nocapture

.PHONY: bench
bench: binaries model ## Speed beside other engines and routers; results under bench/results
	@bench/run.sh $(RELEASE) $(MODEL)

.PHONY: bench-grammars
bench-grammars: binaries model ## Decoding, masks and compiling by JSON schemas beside llama.cpp's grammars; part of bench
	@python=$${PDSERVE_BENCH_PYTHON:-$$(scripts/bench-venv.sh $(CACHE))}; \
	$$python bench/engine/grammars.py --agent $(RELEASE)/pd-agent --model $(MODEL) --scratch $(CACHE)/bench-models \
	    --out bench/results/grammars.json | tee bench/results/grammars.txt

.PHONY: bench-transfer
bench-transfer: binaries ## KV transfer beside Mooncake, NIXL and bare C loops; part of bench
	@bench/transfer/run.sh $(RELEASE)/pd-agent bench/results/transfer.json | tee bench/results/transfer.txt

.PHONY: bench-hops
bench-hops: binaries ## Where the time of one small KV write goes, hop by hop; as root
	@bench/transfer/hops.sh $(RELEASE)/pd-agent | tee bench/results/transfer-hops.txt

.PHONY: bench-operator
bench-operator: binaries ## A thousand deployments at once on a control plane; needs what e2e-kube needs
	@cargo build --release -q $(RELEASE_SET) --example operator-scale
	@$(RELEASE)/examples/operator-scale | tee bench/results/operator.txt
	@$(RELEASE)/examples/operator-scale 1000 bare | tee bench/results/operator-bare.txt

.PHONY: kernels
kernels: rust ## Compile the CUDA kernels and print what each takes; fetches nvcc once
	@PDSERVE_NVCC=$$(scripts/cuda-toolkit.sh $(CACHE)) cargo run -q -p pd-compute --features cuda --example kernels

.PHONY: gpu-bundle
gpu-bundle: rust cxx ## What test-gpu and bench-gpu run, for a machine with a GPU and nothing else: target/gpu-bundle.tar.xz, < 24 MiB
	@PDSERVE_NVCC=$$(scripts/cuda-toolkit.sh $(CACHE)) cargo build --release $(DEMO_SET) -p pd-compute-proof \
	    --features pd-agent/cuda,pd-compute-proof/cuda \
	    --bin pd-agent --bin pd-router --bin gpu-agents --bin gpu-proof --bin gpu-bench
	@PDSERVE_NVCC=$$(scripts/cuda-toolkit.sh $(CACHE)) cargo build --release -p pd-engine --features cuda --example model-speed
	@scripts/gpu-bundle.sh $(RELEASE) $(BUNDLE)

.PHONY: test-gpu
test-gpu: gpu-bundle ## On a machine with a GPU: ops, agents and pairs beside the CPU's; PARTS="names" for some
	@OUT=$(dir $(BUNDLE)) $(BUNDLE)/test-gpu.sh $(PARTS)

.PHONY: bench-gpu
bench-gpu: gpu-bundle ## On a machine with a GPU: ops, whole models in the shapes of Qwen3, first layers of other families, and transformers beside them
	@python3 $(BUNDLE)/run.py $(BUNDLE) bench/results/gpu.json bench/results/gpu.txt
	@python3 $(BUNDLE)/run.py $(BUNDLE) bench/results/gpu-families.json bench/results/gpu-families.txt --families

.PHONY: audit
audit: rust ## Licences, sources and advisories of all dependencies
	@scripts/audit.sh

# --- make it ------------------------------------------------------------------------------------

.PHONY: docs
docs: rust ## The book, in target/book; builds mdBook once
	@scripts/docs.sh $(CACHE)

.PHONY: generate
generate: rust ## Write the generated files (CRD YAML, pages of the book)
	scripts/cargo-tests.sh run -q -p xtask -- generate

.PHONY: golden
golden: FOLDER = $(TARGET)/golden/$(FAMILY)-$(or $(SEED),1)
golden: rust ## Tiny checkpoints and their logits by transformers (6 GB once); FAMILY=qwen2 SEED=7 SET="key=value …" makes and tries another
	@python=$$(scripts/golden-venv.sh $(CACHE)) && $$python agent/engine/golden/make_golden.py \
	    $(if $(FAMILY),$(FAMILY) --out $(FOLDER) --seed $(or $(SEED),1) $(if $(SET),--set $(SET)))
	$(if $(FAMILY),PDSERVE_GOLDEN_DIR=$(FOLDER) scripts/cargo-tests.sh test -q -p pd-engine --lib golden_of_a_folder -- --nocapture)

.PHONY: manifests
manifests: kube ## Render manifests/ from the charts
	@scripts/charts.sh "$$($(RELEASE)/pd-kube tools)" $(CACHE) write

.PHONY: binaries
binaries: rust ## Release binaries under target/release; CUDA=1 for GPUs
	@echo "building release binaries (the first build takes some minutes)"
	@$(NVCC) cargo build --release $(DEMO_SET) --bin pd-agent --bin pd-router --bin pd-operator --bin pd-fetch --bin pd-demo

.PHONY: attackers
attackers: rust
	@$(NVCC) cargo build --release $(DEMO_SET) --bin pd-agent --bin pd-router --bin pd-attacks

.PHONY: plugin
plugin: rust ## kubectl-pd, under target/release
	@$(NVCC) cargo build --release $(RELEASE_SET) --bin kubectl-pd

.PHONY: hub-server
hub-server: rust
	@$(NVCC) cargo build --release $(RELEASE_SET) --bin pd-hub-server

.PHONY: image
image: CUDA := $(or $(CUDA),1)
image: binaries ## A container image with all programs, as target/image/pdserve-VERSION.tar; CUDA=0 for CPUs alone
	@scripts/image.sh $(RELEASE) $(dir $(RELEASE))image

.PHONY: kube
kube: rust
	@$(NVCC) cargo build --release $(RELEASE_SET) --bin pd-kube

.PHONY: model
model: $(MODEL) ## Fetch the demo model once (93 MB)
$(MODEL):
	@scripts/fetch-model.sh $(CACHE) $@

.PHONY: cuda-toolkit
cuda-toolkit: ## Fetch nvcc from PyPI unless it is here, and print its path
	@scripts/cuda-toolkit.sh $(CACHE)

.PHONY: clean
clean: ## Remove what was built and fetched
	rm -rf target $(CACHE)

.PHONY: rust
rust:
	@scripts/check-rust.sh

.PHONY: cxx
cxx:
	@command -v c++ >/dev/null || { printf 'pdserve: %s\n' "no C++ compiler (c++) on the PATH; tests run the CUDA kernels with it." \
	    "On Debian: apt-get install g++" >&2; exit 1; }
