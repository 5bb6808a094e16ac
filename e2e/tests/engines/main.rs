//! One suite over the engines that a `PDDeployment` can name, each as its own processes under `pd-operator local`;
//! `make e2e-engines` installs what they need and runs it.

mod arguments;
mod hub;
mod scaling;
mod starts;
mod suite;
mod workers;

use pd_e2e::engines::Engine;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pdserve() -> anyhow::Result<()> {
    suite::run(&Engine::pdserve()?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sglang() -> anyhow::Result<()> {
    suite::run(&Engine::sglang()?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn vllm() -> anyhow::Result<()> {
    suite::run(&Engine::vllm()?).await
}

#[test]
fn arguments_of_sglang() -> anyhow::Result<()> {
    arguments::run(&Engine::sglang()?)
}

#[test]
fn arguments_of_vllm() -> anyhow::Result<()> {
    arguments::run(&Engine::vllm()?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn starts_of_sglang() -> anyhow::Result<()> {
    starts::run(&Engine::sglang()?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn starts_of_vllm() -> anyhow::Result<()> {
    starts::run(&Engine::vllm()?).await
}

#[tokio::test]
async fn hub() -> anyhow::Result<()> {
    hub::run().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scaling_by_vllm() -> anyhow::Result<()> {
    scaling::run(&Engine::vllm()?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scaling_by_sglang() -> anyhow::Result<()> {
    scaling::run(&Engine::sglang()?).await
}
