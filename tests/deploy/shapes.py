"""Custom resources as their operators' own definitions have them (crds/README.md), as strict JSON Schemas.

A cluster drops a field that it doesn't know; here it is an error. Rules in CEL are left to a cluster.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

Schema = dict[str, Any]

CRDS = Path(__file__).parent / "crds"
_TEXT: Schema = {"type": "string"}
_TEXTS: Schema = {"type": "object", "additionalProperties": _TEXT}
_METADATA: Schema = {
    "type": "object",
    "required": ["name", "namespace"],
    "properties": {"name": _TEXT, "namespace": _TEXT, "labels": _TEXTS, "annotations": _TEXTS},
    "additionalProperties": False,
}


@cache
def schemas() -> Mapping[tuple[str, str], Schema]:
    """(apiVersion, kind) → the whole object's schema, for every version that is served."""
    definitions = [one for file in sorted(CRDS.glob("*.json")) for one in json.loads(file.read_text())["items"]]
    return {
        (f"{spec['group']}/{version['name']}", spec["names"]["kind"]): _whole(version["schema"]["openAPIV3Schema"])
        for spec in (one["spec"] for one in definitions)
        for version in spec["versions"]
        if version["served"]
    }


def _whole(schema: Schema) -> Schema:
    strict = _strict(schema)
    strict["properties"]["metadata"] = _METADATA
    strict["required"] = ["apiVersion", "kind", "metadata", "spec"]
    return strict


def _strict(schema: Schema) -> Schema:
    """An OpenAPI schema as JSON Schema, closed wherever its fields are listed."""
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    found = {key: value for key, value in schema.items() if not key.startswith("x-kubernetes-") and key != "nullable"}
    if schema.get("nullable") and "type" in found:
        found["type"] = [found["type"], "null"]
    if "properties" in schema:
        found["properties"] = {field: _strict(inner) for field, inner in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            found.setdefault("additionalProperties", False)
    for place in ("items", "additionalProperties"):
        if isinstance(schema.get(place), dict):
            found[place] = _strict(schema[place])
    return found
