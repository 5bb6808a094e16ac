# syntax=docker/dockerfile:1
# One image for every process: a release is one tag, a cluster rolls one thing, and a node that runs an agent
# has pulled the router and the operator with it. For amd64. `make image` assembles the same without Docker.
#
#   docker build -t pdserve:0.1.0 .
#
# It has the CUDA kernels, which nvcc from NVIDIA's wheels compiles; agents without a GPU do not need them, and
# --build-arg KERNELS= leaves them out.
ARG RUST=rust:1.95.0-slim-trixie
ARG DEBIAN=debian:trixie-slim
ARG BASE=gcr.io/distroless/cc-debian13:nonroot

FROM --platform=linux/amd64 ${RUST} AS build
ARG KERNELS="--features pd-agent/cuda"
# nvcc's host compiler, and what fetches nvcc.
RUN [ -z "$KERNELS" ] || { apt-get update && apt-get install -y --no-install-recommends g++ python3 python3-pip; }
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    --mount=type=cache,target=/src/.cache \
    if [ -n "$KERNELS" ]; then PDSERVE_NVCC=$(scripts/cuda-toolkit.sh .cache) && export PDSERVE_NVCC; fi \
    && cargo build --release --locked -p pd-agent -p pd-router -p pd-operator -p pd-hub $KERNELS --bins \
    && mkdir /programs \
    && for name in pd-agent pd-router pd-operator pd-fetch; do strip -o /programs/$name target/release/$name; done

# What RDMA NICs are spoken to by, opened at run time.
FROM --platform=linux/amd64 ${DEBIAN} AS rdma
RUN apt-get update && apt-get install -y --no-install-recommends libibverbs1 ibverbs-providers \
    && dpkg -L libibverbs1 ibverbs-providers libnl-3-200 libnl-route-3-200 | grep -E '^(/usr/lib|/etc)/' \
    | while read -r file; do [ -d "$file" ] || cp --archive --parents "$file" /srv; done

# glibc and libgcc, certificates, no shell; runs as 65532 and writes nothing to its root.
FROM --platform=linux/amd64 ${BASE}
LABEL org.opencontainers.image.title=pdserve \
    org.opencontainers.image.description="Prefill and decode of large language models on separate GPUs (linux/amd64)" \
    org.opencontainers.image.licenses=Apache-2.0
COPY --from=rdma /srv/ /
COPY --from=build /programs/ /usr/local/bin/
