//! Facts about what is kept of a spec.

use super::*;
use crate::controller::build::config::BuildConfig;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use pd_crds::document;
use pd_crds::record::recorded;

/// Of an operator to whom a node's folders are open.
fn config() -> BuildConfig {
    BuildConfig {
        may_raise_privileges: true,
        ..BuildConfig::default()
    }
}

fn mk_deployment(edit: impl FnOnce(&mut PdDeploymentSpec)) -> PdDeployment {
    let text = "apiVersion: pdserve.io/v1alpha1
kind: PDDeployment
metadata: {name: tiny, namespace: ns}
spec: {model: {source: {hostPath: {path: /m.gguf}}}, pools: {decode: {replicas: 3}}}
";
    let mut deployment: PdDeployment = document::parse(text).unwrap();
    edit(&mut deployment.spec);
    deployment
}

fn mk_record(of: &PdDeployment) -> ControllerRevision {
    let mut record = build_record(of, 4);
    let accepted = accepted(&of.spec);
    let annotations = record.annotations_mut();
    annotations.insert(ACCEPTED_SPEC.to_owned(), accepted);
    record
}

/// A relative path, which only this crate refuses.
fn relative(spec: &mut PdDeploymentSpec) {
    let source = &mut spec.model.source;
    source.host_path.as_mut().unwrap().path = "m.gguf".to_owned();
}

#[test]
fn all_of_the_last_valid_spec_is_kept_sizes_and_routers_too() {
    let before = mk_deployment(|spec| spec.router.replicas = Some(2));
    let edited = mk_deployment(|spec| {
        relative(spec);
        spec.pools.decode.replicas = Some(9);
        spec.router.replicas = Some(7);
    });
    assert_eq!(
        spec_of(&edited, &mk_record(&before), &config()),
        Some(before.spec)
    );
}

#[test]
fn what_an_older_operator_took_is_kept_though_new_rules_refuse_it() {
    let mut record = mk_record(&mk_deployment(relative));
    record.metadata.annotations = None;
    let same = mk_deployment(relative);
    assert_eq!(spec_of(&same, &record, &config()), Some(same.spec.clone()));
}

#[test]
fn of_an_older_record_the_pods_parts_are_kept_if_the_rest_is_valid() {
    let before = mk_deployment(|spec| spec.engine.image = Some("agent:2".to_owned()));
    let mut record = mk_record(&before);
    record.metadata.annotations = None;
    let edited = mk_deployment(relative);
    let kept = spec_of(&edited, &record, &config()).expect("a spec");
    assert_eq!(
        (kept.engine.image.as_deref(), kept.pools.decode.replicas),
        (Some("agent:2"), Some(3))
    );
    record.data = Some(RawExtension(recorded(&edited.spec)));
    record.metadata.name = Some("tiny-of-another-spec".to_owned());
    assert_eq!(spec_of(&edited, &record, &config()), None);
}

#[test]
fn a_spec_that_no_annotation_can_hold_is_not_kept() {
    let large = mk_deployment(|spec| {
        spec.model.served_model_name = Some("m".repeat(ACCEPTED_BYTES_MAX));
    });
    assert_eq!(spec_of(&large, &mk_record(&large), &config()), None);
}

#[test]
fn the_index_holds_a_digest_in_the_specs_place() {
    let deployment = mk_deployment(|_| ());
    let record = pruned(mk_record(&deployment));
    assert_eq!(record.data, None);
    let digest = digest_of(&accepted(&deployment.spec));
    assert_eq!(record.annotations().get(ACCEPTED_SPEC), Some(&digest));
}
