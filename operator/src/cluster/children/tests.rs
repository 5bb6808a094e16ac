//! Facts about the index, event by event.

use super::*;
use pd_crds::pod::Pod;

fn mk_pod(name: &str, deployment: Option<&str>) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.name = Some(name.to_owned());
    pod.metadata.namespace = Some("ns".to_owned());
    pod.metadata.labels =
        deployment.map(|name| BTreeMap::from([(labels::DEPLOYMENT.to_owned(), name.to_owned())]));
    pod
}

fn mk_indexer() -> (Indexer<Pod, Pod>, Children<Pod>) {
    let objects = Arc::<RwLock<Contents<Pod>>>::default();
    let indexer = Indexer {
        notify: NotifyOf::Everything,
        keep: |pod| pod,
        objects: Arc::clone(&objects),
        listed: Objects::new(),
    };
    (indexer, Children { objects })
}

fn key(name: &str) -> Key {
    Key::new(name).within("ns")
}

fn names(children: &Children<Pod>, deployment: &str) -> Vec<String> {
    let own = children.of(&key(deployment));
    own.iter().map(|pod| pod.name_any()).collect()
}

#[test]
fn an_object_is_found_under_the_deployment_of_its_label() {
    let (mut indexer, children) = mk_indexer();
    assert_eq!(
        indexer.take(Event::Apply(mk_pod("p-0", Some("a")))),
        vec![key("a")]
    );
    assert_eq!(
        indexer.take(Event::Apply(mk_pod("p-1", Some("b")))),
        vec![key("b")]
    );
    assert_eq!(indexer.take(Event::Apply(mk_pod("p-2", None))), vec![]);
    assert_eq!(names(&children, "a"), ["p-0"]);
}

#[test]
fn a_deleted_object_is_gone_and_its_deployment_is_notified() {
    let (mut indexer, children) = mk_indexer();
    indexer.take(Event::Apply(mk_pod("p-0", Some("a"))));
    assert_eq!(
        indexer.take(Event::Delete(mk_pod("p-0", Some("a")))),
        vec![key("a")]
    );
    assert!(names(&children, "a").is_empty());
    assert!(
        indexer.objects.read().objects.is_empty(),
        "an empty entry would leak"
    );
}

#[test]
fn a_new_list_replaces_the_old_at_once_and_reports_what_vanished() {
    let (mut indexer, children) = mk_indexer();
    indexer.take(Event::Apply(mk_pod("p-0", Some("gone"))));
    indexer.take(Event::Init);
    indexer.take(Event::InitApply(mk_pod("p-1", Some("a"))));
    assert_eq!(
        names(&children, "gone"),
        ["p-0"],
        "a list under way is not shown"
    );
    let mut notified = indexer.take(Event::InitDone);
    notified.sort_by(|a, b| a.name.cmp(&b.name));
    assert_eq!(notified, vec![key("a"), key("gone")]);
    assert!(names(&children, "gone").is_empty());
    assert_eq!(names(&children, "a"), ["p-1"]);
}

#[test]
fn a_status_notifies_only_where_it_matters() {
    let versioned = |generation, resource_version: &str| {
        let mut pod = mk_pod("p-0", Some("a"));
        pod.metadata.generation = Some(generation);
        pod.metadata.resource_version = Some(resource_version.to_owned());
        Event::Apply(pod)
    };
    let (mut indexer, children) = mk_indexer();
    indexer.take(versioned(1, "1"));
    assert_eq!(indexer.take(versioned(1, "2")), vec![key("a")]);
    indexer.notify = NotifyOf::AllButStatus;
    assert_eq!(indexer.take(versioned(1, "3")), vec![]);
    let seen = children.of(&key("a"))[0].resource_version();
    assert_eq!(seen.as_deref(), Some("3"), "the index has it all the same");
    assert_eq!(indexer.take(versioned(2, "4")), vec![key("a")]);
}

#[test]
fn the_answer_of_a_write_is_known_unless_the_watch_is_newer() {
    let (mut indexer, children) = mk_indexer();
    let versioned = |version: &str| {
        let mut pod = mk_pod("p-0", Some("a"));
        pod.metadata.uid = Some("u".to_owned());
        pod.metadata.resource_version = Some(version.to_owned());
        pod
    };
    let answered = |pod: Pod| children.put(&key("a"), &pod.metadata.clone(), pod);
    let known = || {
        let own = children.of(&key("a"));
        own.first().and_then(|pod| pod.resource_version())
    };
    answered(versioned("5"));
    assert_eq!(known().as_deref(), Some("5"));
    indexer.take(Event::Apply(versioned("7")));
    answered(versioned("6"));
    assert_eq!(
        known().as_deref(),
        Some("7"),
        "another writer changed it since"
    );
    indexer.take(Event::Delete(versioned("8")));
    answered(versioned("7"));
    assert_eq!(known(), None, "an answer that is late revives nothing");
}

#[test]
fn the_answer_of_a_write_outlives_older_events_and_a_list_under_way() {
    let (mut indexer, children) = mk_indexer();
    let versioned = |uid: &str, version: &str| {
        let mut pod = mk_pod("p-0", Some("a"));
        pod.metadata.uid = Some(uid.to_owned());
        pod.metadata.resource_version = Some(version.to_owned());
        pod
    };
    let known = || {
        let own = children.of(&key("a"));
        own.first().and_then(|pod| pod.resource_version())
    };
    let answered = |pod: Pod| children.put(&key("a"), &pod.metadata.clone(), pod);
    indexer.take(Event::Apply(versioned("u", "5")));
    answered(versioned("u", "7"));
    indexer.take(Event::Apply(versioned("u", "6")));
    assert_eq!(known().as_deref(), Some("7"));
    indexer.take(Event::Init);
    indexer.take(Event::InitApply(versioned("u", "7")));
    answered(versioned("u", "8"));
    indexer.take(Event::InitDone);
    assert_eq!(known().as_deref(), Some("8"));
    indexer.take(Event::Apply(versioned("another", "3")));
    assert_eq!(known().as_deref(), Some("3"), "another object of that name");
}
