# syntax=docker/dockerfile:1
# One image for every process: a release is one tag, a cluster rolls one thing, and a node that runs an agent
# has pulled the router and the operator with it. `make image` assembles the same without Docker.
FROM rust:1.95.0-slim-trixie AS build
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    cargo build --release --locked -p pd-agent -p pd-router -p pd-operator --bins \
    && mkdir /programs \
    && for name in pd-agent pd-router pd-operator; do strip -o /programs/$name target/release/$name; done

# What RDMA NICs are spoken to by, opened at run time.
FROM debian:trixie-slim AS rdma
RUN apt-get update && apt-get install -y --no-install-recommends libibverbs1 ibverbs-providers \
    && dpkg -L libibverbs1 ibverbs-providers libnl-3-200 libnl-route-3-200 | grep -E '^(/usr/lib|/etc)/' \
    | while read -r file; do [ -d "$file" ] || cp --archive --parents "$file" /srv; done

# glibc and libgcc, certificates, no shell; runs as 65532 and writes nothing to its root.
FROM gcr.io/distroless/cc-debian13:nonroot
COPY --from=rdma /srv/ /
COPY --from=build /programs/ /usr/local/bin/
