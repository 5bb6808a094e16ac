//! What writes do, and what they cannot do.

use crate::stand::{self, converse, says};
use anyhow::Result;
use pd_e2e::rdma::ethernet::Trouble;

#[tokio::test]
async fn bytes_arrive_whole_and_nothing_else_changes() -> Result<()> {
    let mut bench = stand::boot(2).await?;
    bench.add_rdma(1).await?;
    bench.hosts[stand::A]
        .run("rdma-ping devices", stand::PATIENCE)
        .await?;

    // 256 pieces, two writes each, over two queue pairs, where a send queue holds 48.
    for (family, gid) in [(stand::IPV4, "::ffff:10.9.0.2"), (stand::IPV6, "fe80::")] {
        let (writer, receiver) = converse(&mut bench, "pieces", family).await?;
        says(&writer, &format!("connected to {gid}"))?;
        says(&writer, "a chain of 256: 48 taken, then 0; 0 free")?;
        says(&receiver, "all bytes as written, gaps and guards untouched")?;
        says(&receiver, "immediates [4207804416, 4207804417]")?;
    }

    // One frame of a hundred is lost, and sent again.
    bench.set_trouble(stand::A, 0, Trouble::LosesEvery(100))?;
    let (_, receiver) = converse(&mut bench, "pieces", stand::IPV4).await?;
    says(&receiver, "all bytes as written, gaps and guards untouched")?;
    bench.set_trouble(stand::A, 0, Trouble::None)?;

    for (what, status) in [
        ("outside", "IBV_WC_REM_ACCESS_ERR (10)"),
        ("wrong-key", "IBV_WC_REM_ACCESS_ERR (10)"),
        ("unreceived", "IBV_WC_RNR_RETRY_EXC_ERR (13)"),
    ] {
        let (writer, receiver) = converse(&mut bench, what, stand::IPV4).await?;
        says(&writer, &format!("{status} for a write on queue pair"))?;
        says(&receiver, "region and guards untouched")?;
    }

    let (writer, receiver) = stand::start(&mut bench, "abandoned", stand::IPV4).await?;
    let writer = writer.exit(stand::PATIENCE).await?;
    says(&writer, "48 posted")?;
    says(&writer, "none left")?;
    receiver.exit(stand::PATIENCE).await?;
    Ok(())
}
