//! Schemas of the types of Kubernetes that our kinds embed, as the apiserver validates them.
//!
//! k8s-openapi derives them, too, but only for all of its types at once, which takes half a minute of every build, and
//! with the whole prose of each: a `Quantity` alone explains itself in forty lines, three times per resource list.

use schemars::{Schema, SchemaGenerator, json_schema};

/// `ResourceRequirements` of core/v1, or null.
pub(crate) fn resource_requirements(_: &mut SchemaGenerator) -> Schema {
    let quantities = |description: &str| {
        json_schema!({
            "description": description,
            "type": "object",
            "additionalProperties": {
                "description": "A quantity, such as 1, 500m or 16Gi.",
                "x-kubernetes-int-or-string": true,
            },
        })
    };
    json_schema!({
        "type": ["object", "null"],
        "properties": {
            "limits": quantities("What a container may take at most."),
            "requests": quantities(
                "What a container is sure to have; the limits unless given, where they are given."
            ),
            "claims": {
                "description": "Entries of the pod's resourceClaims that the container uses.",
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {
                        "name": {
                            "description": "Name of an entry of the pod's resourceClaims.",
                            "type": "string",
                        },
                        "request": {
                            "description": "A request of the claim; all of them unless given.",
                            "type": "string",
                        },
                    },
                },
            },
        },
    })
}

/// A list of `Condition`s of meta/v1.
pub(crate) fn conditions(_: &mut SchemaGenerator) -> Schema {
    let text = |description: &str| json_schema!({"description": description, "type": "string"});
    json_schema!({
        "type": "array",
        "maxItems": 32,
        "items": {
            "type": "object",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "lastTransitionTime": {
                    "description": "When the status last changed.",
                    "type": "string",
                    "format": "date-time",
                },
                "message": text("Details, for people."),
                "observedGeneration": {
                    "description": "Generation of the spec that the condition describes.",
                    "type": "integer",
                    "format": "int64",
                },
                "reason": text("Why the status is what it is, in one CamelCase word."),
                "status": text("True, False or Unknown."),
                "type": text("What the condition is about, in CamelCase."),
            },
        },
    })
}

/// `Time` of meta/v1.
pub(crate) fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "date-time"})
}
