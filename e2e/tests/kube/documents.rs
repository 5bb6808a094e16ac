//! What documents say of a cluster happens on one: their walks start, use and end it as they are written; what needs more than
//! this machine has is rendered by Helm.

use anyhow::{Context, Result};
use pd_e2e::binaries;
use pd_e2e::docs::{self, Block, Checker, Language, Mark, Network, Outcome, Row, Table, WalkSite};
use pd_e2e::kube::tools::{Tools, cache};

fn runs_on_a_cluster(block: &Block) -> bool {
    block.language == Language::Shell && block.mark == Some(Mark::Kube)
}

#[tokio::test]
async fn what_is_written_of_a_cluster_happens_on_one() -> Result<()> {
    let root = binaries::workspace();
    let agent = binaries::binary("pd-agent");
    let programs = agent.parent().context("a program lies in a folder")?;
    let helm = Tools::ready(&cache())?.folder().join("helm");
    let checker = Checker::new(root, programs)?.with_helm(helm);
    let place = WalkSite {
        root: root.to_owned(),
        env: Vec::new(),
        network: Network::Host,
    };
    let mut table = Table::default();
    for document in docs::documents(root)? {
        table.extend(docs::walk(&place, &document, runs_on_a_cluster).await?);
        let marked = |block: &&Block| {
            matches!(block.mark, Some(Mark::Check(_))) && block.text.contains("helm ")
        };
        for block in document.blocks.iter().filter(marked) {
            let outcome = match checker.check(block) {
                Ok(commands) => Outcome::Checked {
                    reason: None,
                    commands,
                },
                Err(why) => Outcome::Failed(format!("  {why}")),
            };
            table.extend([Row::of(&document, block, outcome)]);
        }
    }
    eprintln!("{table}");
    table.check()
}
