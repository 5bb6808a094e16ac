#!/usr/bin/env python3
"""Writes the JSON schemas that kubeconform reads, without its download site: Kubernetes' kinds from the
OpenAPI document of its Go module, the Prometheus operator's from the CRDs of its own.

usage: kube-schemas.py SWAGGER_JSON CRD_JSON... FOLDER
"""

import json
import pathlib
import sys

# As the apiserver reads them, beyond what the document says of their type.
LOOSE = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"type": ["string", "number"]},
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"type": ["string", "integer"]},
}
JSON_SCHEMA_PROPS = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps"


def strict(schema):
    """Refuses fields that the schema does not name, wherever it names any."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    fields = schema.get("properties")
    schema = {key: strict(value) for key, value in schema.items() if key != "properties"}
    if schema.get("x-kubernetes-int-or-string") is True:
        schema.pop("anyOf", None)
        schema["type"] = ["string", "integer"]
    if fields is not None:
        schema["properties"] = {name: strict(field) for name, field in fields.items()}
        if schema.get("x-kubernetes-preserve-unknown-fields") is not True:
            schema.setdefault("additionalProperties", False)
    return schema


def needed(schema, definitions, found):
    """Collects what a schema refers to, and what that refers to."""
    if isinstance(schema, list):
        for item in schema:
            needed(item, definitions, found)
    elif isinstance(schema, dict):
        name = str(schema.get("$ref", "")).removeprefix("#/definitions/")
        if name in definitions and name not in found:
            found[name] = definitions[name]
            needed(definitions[name], definitions, found)
        for value in schema.values():
            needed(value, definitions, found)
    return found


def write(folder, group, version, kind, schema):
    name = "-".join(filter(None, [kind, group.split(".")[0], version])).lower()
    (folder / f"{name}.json").write_text(json.dumps(schema))


def main():
    swagger, *crds, folder = map(pathlib.Path, sys.argv[1:])
    folder.mkdir(parents=True, exist_ok=True)
    definitions = strict(json.loads(swagger.read_text())["definitions"]) | LOOSE
    # A property of this name confuses kubeconform, and no CRD may use it.
    del definitions[JSON_SCHEMA_PROPS]["properties"]["$ref"]
    for name, schema in definitions.items():
        kinds = schema.get("x-kubernetes-group-version-kind", [])
        # Options of a delete call belong to every group.
        for gvk in kinds if len(kinds) == 1 else []:
            ref = {"$ref": f"#/definitions/{name}"}
            ref["definitions"] = needed(ref, definitions, {})
            write(folder, gvk["group"], gvk["version"], gvk["kind"], ref)
    for crd in crds:
        spec = json.loads(crd.read_text())["spec"]
        for version in spec["versions"]:
            schema = strict(version["schema"]["openAPIV3Schema"])
            schema["properties"]["metadata"] = {"type": "object"}
            write(folder, spec["group"], version["name"], spec["names"]["kind"], schema)


main()
