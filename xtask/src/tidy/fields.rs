//! docs/fields.md shows the agent's table of fields, which the agent's tests write as a snapshot.

use crate::generate::workspace_root;

const SNAPSHOT: &str = "agent/src/http/fields/snapshots/pd_agent__http__fields__tests__the_table_as_documents_have_it.snap";

#[test]
fn the_page_of_fields_is_the_agents_table() {
    let read = |path: &str| {
        let path = workspace_root().join(path);
        std::fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
    };
    let snapshot = read(SNAPSHOT);
    let table = snapshot.splitn(3, "---\n").last().unwrap_or_default();
    assert!(
        read("docs/fields.md").contains(table.trim()),
        "docs/fields.md does not hold the table of {SNAPSHOT}: copy it there"
    );
}
