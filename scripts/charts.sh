#!/usr/bin/env bash
# Lints and renders the charts in every mode, holds the result against Kubernetes' schemas and the rules against
# their tests, and checks that manifests/ is what the charts render. Needs a network the first time only.
# usage: charts.sh TOOLS CACHE [write]     TOOLS: folder with helm and kubeconform; write: renders manifests/ again
set -euo pipefail
tools=$1 cache=$2 mode=${3:-check}
operator_crds=github.com/prometheus-operator/prometheus-operator@v0.85.0
fail() { printf 'pdserve: %s\n' "$@" >&2; exit 1; }
step() { printf '%s\n' "$*"; }
chart=charts/pdserve
monitoring=monitoring.coreos.com/v1/PodMonitor,monitoring.coreos.com/v1/PrometheusRule
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
helm() { HELM_CACHE_HOME=$work HELM_CONFIG_HOME=$work HELM_DATA_HOME=$work "$tools/helm" "$@"; }
render() { helm template pdserve "$chart" --namespace pdserve-system "$@"; }

# --- manifests ----------------------------------------------------------------------------------

mkdir "$work/manifests"
helm template pdserve-crds charts/pdserve-crds >"$work/manifests/crds.yaml"
{
    printf '%s\n' '---' 'apiVersion: v1' 'kind: Namespace' 'metadata:' '  name: pdserve-system'
    render --no-hooks
} >"$work/manifests/operator.yaml"
version=$(sed -n 's/^appVersion: //p' "$chart/Chart.yaml")
cat >"$work/manifests/kustomization.yaml" <<YAML
# kubectl apply --server-side -k manifests, or a resource of your own kustomization. The image stands in one place: agents and
# routers whose spec names none run the operator's own.
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
- crds.yaml
- operator.yaml
images:
- name: pdserve
  newName: pdserve
  newTag: $version
YAML
if [ "$mode" = write ]; then
    mkdir -p manifests
    cp "$work"/manifests/* manifests/
    step "manifests/ written"
    exit
fi
diff -ru manifests "$work/manifests" >&2 || fail "manifests/ is out of date: run make manifests and commit the result."
step "manifests/ is what the charts render"

# --- schemas and promtool, once -----------------------------------------------------------------

kubernetes=$(grep -o 'kubernetes-v[0-9.]*[0-9]' <<<"$tools" | cut -d- -f2) || fail "$tools names no Kubernetes version."
schemas=$cache/kube/schemas-$kubernetes
if [ ! -d "$schemas" ]; then
    step "making the schemas of Kubernetes $kubernetes from its Go module (once)"
    module() { (cd "$work" && GOFLAGS=-modcacherw GOMODCACHE="$work/go" go mod download -json "$1") | sed -n 's/.*"Dir": "\(.*\)".*/\1/p'; }
    spec=$(module "k8s.io/kubernetes@$kubernetes")/api/openapi-spec/swagger.json
    crds=$(module "$operator_crds")/jsonnet/prometheus-operator
    scripts/kube-schemas.py "$spec" "$crds"/{podmonitors,prometheusrules}-crd.json "$work/schemas"
    mkdir -p "$cache/kube"
    mv "$work/schemas" "$schemas"
fi
promtool=$(scripts/fetch-prometheus.sh "$cache")/promtool

# --- render -------------------------------------------------------------------------------------

valid() { # NAME FILE
    "$tools/kubeconform" -strict -summary -schema-location "$schemas/{{.ResourceKind}}{{.KindSuffix}}.json" "$2" >"$work/output" ||
        fail "$1: what the chart renders is not valid:" "$(cat "$work/output")"
    printf '  %-12s %s\n' "$1" "$(tail -n1 "$work/output")"
}
for folder in charts/pdserve-crds "$chart"; do
    helm lint --strict --quiet "$folder" >"$work/output" || fail "$(cat "$work/output")"
done
step "helm lint is content; kubeconform says of"
valid crds "$work/manifests/crds.yaml"
render >"$work/default.yaml"
valid default "$work/default.yaml"
for values in "$chart"/ci/*-values.yaml; do
    name=$(basename "$values" -values.yaml)
    helm lint --strict --quiet -f "$values" "$chart" >"$work/output" || fail "$values: $(cat "$work/output")"
    render -f "$values" --api-versions "$monitoring" >"$work/$name.yaml"
    valid "$name" "$work/$name.yaml"
done
! grep -n '^kind: Cluster' "$work/namespaced.yaml" || fail "namespaced mode renders what only a cluster's owner may create."

refused() { # VALUE: that the schema must refuse
    ! render --set "$1" >/dev/null 2>&1 || fail "the chart accepts $1."
}
for value in replica=2 replicas=two image.digest=latest image.name=x logLevel=loud metrics.podMonitor.enabled=maybe \
    metrics.prometheusRule.slo.ttftSeconds=3 metrics.prometheusRule.slo.objective=99 'resources.request.cpu=1'; do
    refused "$value"
done
step "values that are none are refused"

# --- rules and dashboards -----------------------------------------------------------------------

render --api-versions "$monitoring" --set metrics.prometheusRule.runbooks=https://runbooks \
    -s templates/prometheusrule.yaml | sed '1,/^spec:/d; s/^  //' >"$work/rules.yaml"
scripts/promql.py "$work/rules.yaml" "$chart"/dashboards/*.json >"$work/panels.yaml"
cp "$chart/rules/tests.yaml" "$work"
for words in 'check rules rules.yaml' 'check rules --lint=none panels.yaml' 'test rules tests.yaml'; do
    (cd "$work" && "$promtool" $words) >"$work/output" 2>&1 || fail "promtool $words:" "$(cat "$work/output")"
    step "promtool $words: $(grep -oh 'SUCCESS.*' "$work/output")"
done

# --- Argo CD and kstatus ------------------------------------------------------------------------

lua=$(scripts/fetch-lua.sh "$cache")
kstatus=$cache/kube/kstatus-$(cat scripts/kstatus/{main.go,go.sum} | sha256sum | cut -c1-12)
if [ ! -x "$kstatus" ]; then
    step "building kstatus from its Go module (once)"
    (cd scripts/kstatus && CGO_ENABLED=0 go build -trimpath -o "$kstatus" .) || fail "scripts/kstatus does not build; its message is above."
fi
step "objects of each phase, by those who judge them"
scripts/health.py "$lua" "$kstatus" || fail "contrib/argocd or kstatus says something else of objects than is written beside them."
