#!/usr/bin/env python3
"""Holds dashboards and alert rules against the metrics that the sources register, and prints every expression
of the dashboards as a recording rule, for promtool to read.

usage: promql.py RULES DASHBOARD...
"""

import json
import pathlib
import re
import sys

# Prefix → the sources that register metrics under it.
HOMES = {"pdserve": "agent", "pd_router": "router/src", "pd_operator": "operator/src", "DCGM_FI_DEV": "agent/src/gpu"}
VARIABLES = {"$__rate_interval": "1m", "$namespace": ".*", "$pddeployment": ".*"}


def metrics(text):
    for prefix, name in re.findall(rf"\b({'|'.join(HOMES)})_(\w+)\b(?=[{{\[)\s])", text):
        yield prefix, re.sub(r"_(bucket|sum|count)$", "", name)


def registered(prefix, name):
    sources = pathlib.Path(HOMES[prefix]).rglob("*.rs")
    return any(f'"{name}"' in text or f'"{prefix}_{name}"' in text for text in (s.read_text() for s in sources))


def main():
    rules, *dashboards = map(pathlib.Path, sys.argv[1:])
    expressions = []
    for path in dashboards:
        panels = json.loads(path.read_text())["panels"]
        expressions += [t["expr"] for panel in panels for t in panel.get("targets", [])]
    used = set(metrics("\n".join(expressions) + rules.read_text()))
    assert used, "no metric is used"
    missing = sorted("_".join(metric) for metric in used if not registered(*metric))
    if missing:
        sys.exit(f"pdserve: no source registers {', '.join(missing)}, which a dashboard or a rule reads")
    for variable, value in VARIABLES.items():
        expressions = [expr.replace(variable, value) for expr in expressions]
    recorded = [{"record": f"panel:{nr}", "expr": expr} for nr, expr in enumerate(expressions)]
    print(json.dumps({"groups": [{"name": "dashboards", "rules": recorded}]}))
    print(f"{len(expressions)} expressions and the rules read {len(used)} metrics", file=sys.stderr)


main()
