//! Every document says what happens: its commands run here as they stand, or are checked.

mod walks;

use anyhow::{Context, Result};
use pd_e2e::binaries;
use pd_e2e::docs::{
    self, Block, Checker, Document, Language, Mark, Network, Outcome, Row, Table, WalkSite,
};

/// Blocks that run on this machine.
fn runs_here(block: &Block) -> bool {
    block.language == Language::Shell && block.mark.is_none()
}

#[tokio::test]
async fn what_is_written_is_what_happens() -> Result<()> {
    let root = binaries::workspace();
    let checker = checker()?;
    let cache = tempfile::tempdir()?;
    let place = WalkSite {
        root: root.to_owned(),
        env: vec![("PDSERVE_CACHE_DIR", cache.path().display().to_string())],
        network: Network::Loopback,
    };
    let mut table = Table::default();
    for document in docs::documents(root)? {
        table.extend(docs::walk(&place, &document, runs_here).await?);
        for block in document.blocks.iter().filter(|block| !runs_here(block)) {
            table.extend([judge(&checker, &document, block)]);
        }
        if document.path.starts_with("examples") {
            table.extend(checker.check_containers(&document.path)?);
        }
    }
    eprintln!("{table}");
    table.check()
}

fn checker() -> Result<Checker> {
    let agent = binaries::binary("pd-agent");
    let programs = agent.parent().context("a program lies in a folder")?;
    Checker::new(binaries::workspace(), programs)
}

/// What can be said of a block that does not run here.
fn judge(checker: &Checker, document: &Document, block: &Block) -> Row {
    let checked = match &block.mark {
        Some(Mark::Ci) => checker.check_in_ci(block).map(|()| Outcome::Ci),
        Some(Mark::Kube) => checker.check(block).map(|commands| Outcome::Checked {
            reason: Some("`make e2e-kube` runs it".to_owned()),
            commands,
        }),
        Some(Mark::Check(reason)) => checker.check(block).map(|commands| Outcome::Checked {
            reason: Some(reason.clone()),
            commands,
        }),
        None if block.language == Language::Other => Ok(Outcome::Shown),
        None => checker.check(block).map(|commands| Outcome::Checked {
            reason: None,
            commands,
        }),
    };
    let outcome = checked.unwrap_or_else(|why| Outcome::Failed(format!("  {why}")));
    Row::of(document, block, outcome)
}
