//! What a crash leaves is recognised.

use super::*;

fn mk_entry(id: &str, owner: Option<Owner>) -> Entry {
    Entry {
        id: id.to_owned(),
        dir: PathBuf::from("/nowhere"),
        nodes: 0,
        owner,
    }
}

#[test]
fn entries_are_read_back_until_they_are_removed() {
    let cache = tempfile::tempdir().unwrap();
    let ledger = Ledger::new(cache.path());
    assert_eq!(ledger.entries(), []);
    let (a, b) = (
        mk_entry("a", None),
        mk_entry("b", Owner::of(std::process::id())),
    );
    ledger.write(&b).unwrap();
    ledger.write(&a).unwrap();
    assert_eq!(ledger.entries(), [a, b.clone()]);
    ledger.remove("a").unwrap();
    ledger.remove("a").unwrap();
    assert_eq!(ledger.entries(), [b]);
}

#[test]
fn an_entry_without_its_owner_is_an_orphan() {
    let me = Owner::of(std::process::id()).unwrap();
    assert!(!mk_entry("mine", Some(me)).is_orphan());
    assert!(mk_entry("kept, but no process bears its mark", None).is_orphan());
    let earlier = Owner {
        started: me.started - 1,
        ..me
    };
    assert!(mk_entry("of an earlier process with my number", Some(earlier)).is_orphan());
}
