//! The same binary where there is no RDMA.

use crate::stand::{self, PATIENCE, says};
use anyhow::{Result, ensure};

#[tokio::test]
async fn a_machine_without_rdma_gets_an_error_in_words() -> Result<()> {
    let mut bench = stand::boot(1).await?;
    let host = &mut bench.hosts[0];
    let exit = host
        .start("rdma-ping devices")
        .await?
        .exit(PATIENCE)
        .await?;
    ensure!(exit.code == 1, "it ended with {}", exit.code);
    says(&exit, "this machine has no RDMA device")?;

    let hide = "mv /usr/lib/x86_64-linux-gnu/libibverbs.so.1 /tmp";
    host.run(hide, PATIENCE).await?;
    let exit = host
        .start("rdma-ping devices")
        .await?
        .exit(PATIENCE)
        .await?;
    ensure!(exit.code == 1, "it ended with {}", exit.code);
    says(&exit, "libibverbs.so.1 cannot be opened")?;
    says(&exit, "install libibverbs1")
}
