#!/usr/bin/env python3
"""Prints the software bill of materials of a release as SPDX 2.3 JSON: the image, its Debian packages as its own records of
dpkg name them, and the crates that its programs are linked of, as Cargo resolves them for the release's features and target.

Scanners of images see no crates in stripped programs, and scanners of sources list Cargo.lock with all that only tests take;
both halves are known here exactly.

usage: sbom.py IMAGE_ARCHIVE     CARGO: cargo's path; SOURCE_DATE_EPOCH: the document's time
"""

import datetime
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tomllib
import urllib.parse

PROGRAMS = ["pd-agent", "pd-router", "pd-operator", "pd-hub", "kubectl-pd"]
FEATURES = "pd-agent/cuda"
TARGET = "x86_64-unknown-linux-gnu"


def spdx_id(*parts):
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]+", "-", "-".join(parts))


def package(name, version, **fields):
    base = {"name": name, "versionInfo": version, "downloadLocation": "NOASSERTION", "filesAnalyzed": False,
            "licenseConcluded": "NOASSERTION", "licenseDeclared": "NOASSERTION", "copyrightText": "NOASSERTION"}
    return base | fields


def purl(kind, name, version, **qualifiers):
    query = "?" + urllib.parse.urlencode(qualifiers) if qualifiers else ""
    quoted = urllib.parse.quote(version, safe="")
    locator = f"pkg:{kind}/{name}@{quoted}{query}"
    return [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": locator}]


def checksums():
    """(name, version) → sha256 of the crate's archive."""
    lock = tomllib.loads(pathlib.Path("Cargo.lock").read_text())
    return {(p["name"], p["version"]): p["checksum"] for p in lock["package"] if "checksum" in p}


def license_of(crate):
    # Cargo once had a slash where SPDX has OR.
    declared = (crate["license"] or "NOASSERTION").replace("/", " OR ")
    return re.sub(r"\s+", " ", declared)


def crates():
    """The packages of all programs, and what links what."""
    cargo = [os.environ.get("CARGO", "cargo"), "metadata", "--format-version=1", "--locked", "--filter-platform", TARGET,
             "--features", FEATURES]
    metadata = json.loads(subprocess.run(cargo, check=True, capture_output=True, text=True).stdout)
    by_id = {crate["id"]: crate for crate in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    roots = [i for i, crate in by_id.items() if crate["name"] in PROGRAMS and crate["source"] is None]
    assert len(roots) == len(PROGRAMS), "a program is no package of the workspace"
    sums, packages, links, todo = checksums(), {}, [], list(roots)
    name = {i: spdx_id("crate", crate["name"], crate["version"]) for i, crate in by_id.items()}
    while todo:
        i = todo.pop()
        if name[i] in packages:
            continue
        crate = by_id[i]
        fields = {"SPDXID": name[i], "licenseDeclared": license_of(crate), "supplier": "NOASSERTION"}
        if crate["source"]:
            key = (crate["name"], crate["version"])
            fields["checksums"] = [{"algorithm": "SHA256", "checksumValue": sums[key]}]
            fields["externalRefs"] = purl("cargo", *key)
        packages[name[i]] = package(crate["name"], crate["version"], **fields)
        for dep in nodes[i]["deps"]:
            # Null is what is linked; dev and build are not in the program.
            if any(kind["kind"] is None for kind in dep["dep_kinds"]):
                links.append((name[i], "DEPENDS_ON", name[dep["pkg"]]))
                todo.append(dep["pkg"])
    return list(packages.values()), links, [name[i] for i in roots]


def debian(archive):
    """The image's packages as its own records name them, and the image's digest."""
    found, digest = [], None
    with tarfile.open(archive) as image:
        index = json.load(image.extractfile("index.json"))
        digest = index["manifests"][0]["digest"]
        read = lambda d: image.extractfile("blobs/" + d.replace(":", "/"))
        for layer in json.load(read(digest))["layers"]:
            with tarfile.open(fileobj=read(layer["digest"]), mode="r:gz") as files:
                for member in files:
                    if "/dpkg/status.d/" in "/" + member.name and member.isfile():
                        text = files.extractfile(member).read().decode()
                        found.append(dict(re.findall(r"^([A-Za-z-]+): (.*)$", text, re.M)))
    assert found, f"{archive} has no records of dpkg"
    packages = []
    for record in sorted(found, key=lambda r: r["Package"]):
        name, version, arch = record["Package"], record["Version"], record["Architecture"]
        packages.append(package(name, version, SPDXID=spdx_id("deb", name), supplier="Organization: Debian",
                                externalRefs=purl("deb", f"debian/{name}", version, arch=arch)))
    return packages, digest


def main():
    archive = pathlib.Path(sys.argv[1])
    version = tomllib.loads(pathlib.Path("Cargo.toml").read_text())["workspace"]["package"]["version"]
    rust, links, roots = crates()
    debs, digest = debian(archive)
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    image = package("pdserve", version, SPDXID="SPDXRef-image", packageFileName=archive.name, licenseDeclared="Apache-2.0",
                    primaryPackagePurpose="CONTAINER", checksums=[{"algorithm": "SHA256", "checksumValue": sha256}],
                    comment=f"manifest {digest}", supplier="NOASSERTION")
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-image")]
    relations += [("SPDXRef-image", "CONTAINS", p["SPDXID"]) for p in debs]
    relations += [("SPDXRef-image", "CONTAINS", root) for root in roots if "kubectl-pd" not in root]
    relations += [("SPDXRef-DOCUMENT", "DESCRIBES", root) for root in roots if "kubectl-pd" in root]
    relations += sorted(set(links))
    at = datetime.datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), datetime.timezone.utc)
    document = {
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"pdserve-{version}",
        "documentNamespace": f"https://pdserve.io/spdx/pdserve-{version}-{sha256}",
        "creationInfo": {"created": at.strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": ["Tool: pdserve-sbom"]},
        "packages": [image, *debs, *sorted(rust, key=lambda p: p["SPDXID"])],
        "relationships": [{"spdxElementId": a, "relationshipType": kind, "relatedSpdxElement": b} for a, kind, b in relations],
    }
    print(json.dumps(document, indent=1))
    print(f"{len(debs)} Debian packages, {len(rust)} crates", file=sys.stderr)


main()
