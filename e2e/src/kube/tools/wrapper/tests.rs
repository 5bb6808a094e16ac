//! What the wrapper takes over from the module that it wraps.

use super::*;

const UPSTREAM: &str = "module k8s.io/kubernetes

go 1.26.0

godebug default=go1.26

require (
\tk8s.io/api v0.0.0
\tk8s.io/klog/v2 v2.140.0
)

replace (
\tk8s.io/api => ./staging/src/k8s.io/api
\tk8s.io/client-go => ./staging/src/k8s.io/client-go
)
";

#[test]
fn staging_modules_are_replaced_by_their_published_twins() {
    let source = Source {
        module: "k8s.io/kubernetes",
        version: "v1.36.3",
        commands: &[],
    };
    let expected = "module pdserve.invalid/tools

go 1.26.0
godebug default=go1.26

require k8s.io/kubernetes v1.36.3

replace k8s.io/api => k8s.io/api v0.36.3
replace k8s.io/client-go => k8s.io/client-go v0.36.3
";
    assert_eq!(go_mod(&source, UPSTREAM), expected);
}

#[test]
fn a_module_without_a_source_tree_is_only_required() {
    let source = Source {
        module: "helm.sh/helm/v4",
        version: "v4.3.1",
        commands: &[],
    };
    let upstream = "module helm.sh/helm/v4\n\ngo 1.26.0\n\nrequire k8s.io/api v0.36.0\n";
    assert_eq!(
        go_mod(&source, upstream),
        "module pdserve.invalid/tools\n\ngo 1.26.0\n\nrequire helm.sh/helm/v4 v4.3.1\n\n"
    );
}
