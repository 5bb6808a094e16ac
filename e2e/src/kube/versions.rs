//! Every pinned version of the cluster, and the commands that are built from each module.

use std::fmt::Write as _;

/// The release that everything is proven on.
pub const KUBERNETES: &str = "v1.36.3";
/// Kubernetes' staging modules carry its version with this major number.
pub const KUBERNETES_STAGING: &str = "v0.36.3";
/// Oldest Go that these modules accept.
pub const GO_MIN: (u32, u32) = (1, 26);

/// One Go module and what is built from it.
#[derive(Debug)]
pub struct Source {
    pub module: &'static str,
    pub version: &'static str,
    /// Binary → its package; of several, each is named as the package's folder.
    pub commands: &'static [(&'static str, &'static str)],
}

/// In build order: the long one first, so that the others find its packages built.
pub const SOURCES: &[Source] = &[
    Source {
        module: "k8s.io/kubernetes",
        version: KUBERNETES,
        commands: &[
            ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
            (
                "kube-controller-manager",
                "k8s.io/kubernetes/cmd/kube-controller-manager",
            ),
            ("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
            ("kubelet", "k8s.io/kubernetes/cmd/kubelet"),
            ("kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy"),
            ("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
        ],
    },
    Source {
        module: "go.etcd.io/etcd/server/v3",
        version: "v3.6.16",
        commands: &[("etcd", "go.etcd.io/etcd/server/v3")],
    },
    Source {
        module: "helm.sh/helm/v4",
        version: "v4.3.1",
        commands: &[("helm", "helm.sh/helm/v4/cmd/helm")],
    },
    Source {
        module: "github.com/yannh/kubeconform",
        version: "v0.8.0",
        commands: &[(
            "kubeconform",
            "github.com/yannh/kubeconform/cmd/kubeconform",
        )],
    },
];

/// What a proof of its own runs beside a cluster, with the folders of its module that it needs. Built for that proof alone.
#[derive(Debug)]
pub struct Extra {
    pub source: Source,
    pub folders: &'static [&'static str],
    /// A `main` of ours, in place of the module's own, which would bring a hundred modules that no proof needs.
    pub main: Option<&'static str>,
}

/// Karpenter, whose cloud only makes Node objects.
pub const KARPENTER: Extra = Extra {
    source: Source {
        module: "sigs.k8s.io/karpenter",
        version: "v1.14.1",
        commands: &[("karpenter-kwok", "sigs.k8s.io/karpenter/kwok")],
    },
    folders: &["pkg/apis/crds", "kwok/apis/crds"],
    main: None,
};

/// CoreDNS, which resolves the names of Services and pods, as in most clusters.
pub const COREDNS: Extra = Extra {
    source: Source {
        module: "github.com/coredns/coredns",
        version: "v1.15.0",
        commands: &[("coredns", ".")],
    },
    folders: &[],
    main: Some(COREDNS_MAIN),
};

/// Kueue, which lets pods to their scheduler when there is quota for all of a group.
pub const KUEUE: Extra = Extra {
    source: Source {
        module: "sigs.k8s.io/kueue",
        version: "v0.17.0",
        commands: &[("kueue", "sigs.k8s.io/kueue/cmd/kueue")],
    },
    folders: &["config/components/crd/bases"],
    main: None,
};

/// kube-router, of which the part that keeps network policies runs.
pub const KUBE_ROUTER: Extra = Extra {
    source: Source {
        module: "github.com/cloudnativelabs/kube-router/v2",
        version: "v2.1.0",
        commands: &[(
            "kube-router",
            "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router",
        )],
    },
    folders: &[],
    main: None,
};

const COREDNS_MAIN: &str = r#"package main

import (
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
)

func main() { coremain.Run() }
"#;

/// Names the set: a folder of tools holds exactly these versions.
pub fn folder_name() -> String {
    let mut name = String::new();
    for source in SOURCES {
        let (first, _) = source.commands[0];
        let short = if source.version == KUBERNETES {
            "kubernetes"
        } else {
            first
        };
        let separator = if name.is_empty() { "" } else { "_" };
        write!(name, "{separator}{short}-{}", source.version).expect("a String takes every write");
    }
    name
}
