"""What docs/openapi.json says of requests and answers, held against real ones."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any
from urllib.parse import parse_qs, urlsplit

from jsonschema import Draft202012Validator

from tests.testkit.system import REPOSITORY

Part = Mapping[str, Any]


@cache
def document() -> dict[str, Any]:
    """The committed document."""
    return json.loads((REPOSITORY / "docs" / "openapi.json").read_text())


def operation(method: str, path: str) -> Part:
    """What the document says of a request; raises LookupError."""
    for template, methods in document()["paths"].items():
        if method.lower() in methods and re.fullmatch(re.sub(r"{[^}]+}", "[^/]+", template), path):
            return methods[method.lower()]
    raise LookupError(f"{method} {path}")


def wrong_request(method: str, url: str, content: bytes) -> list[str]:
    """What of a request the document does not know."""
    parts = urlsplit(url)
    described = operation(method, parts.path)
    known = {one["name"] for one in described.get("parameters", ()) if one["in"] == "query"}
    found = [f"{name}: not a parameter" for name in parse_qs(parts.query) if name not in known]
    body = described.get("requestBody", {}).get("content")
    if content and body is None:
        return [*found, "a body that nobody reads"]
    return [*found, *(_wrong(body, json.loads(content)) if content else ())]


def wrong_answer(method: str, url: str, status: int, content: bytes) -> list[str]:
    """What of a JSON answer is not as the document has it; a field that it doesn't declare is."""
    responses = operation(method, urlsplit(url).path)["responses"]
    described = responses.get(str(status)) if status < 400 else responses["default"]
    return [f"{status}: not declared"] if described is None else list(_wrong(described["content"], json.loads(content)))


def _wrong(content: Part, value: Any) -> Iterator[str]:
    schema = content["application/json"]["schema"]
    whole = {**schema, "components": document()["components"]}
    yield from (f"{error.json_path}: {error.message}" for error in Draft202012Validator(whole).iter_errors(value))
    yield from _undeclared(schema, value, "$")


def _undeclared(schema: Part, value: Any, at: str) -> Iterator[str]:
    """Fields of objects that no schema declares, where one declares any."""
    choices = [_resolved(one) for one in _resolved(schema).get("anyOf", (schema,))]
    if isinstance(value, list):
        items = next((one["items"] for one in choices if "items" in one), {})
        for place, inner in enumerate(value):
            yield from _undeclared(items, inner, f"{at}[{place}]")
    declared = next((one["properties"] for one in choices if "properties" in one), None)
    if isinstance(value, dict) and declared is not None:
        yield from (f"{at}.{name}: not declared" for name in value if name not in declared)
        for name, inner in value.items():
            yield from _undeclared(declared.get(name, {}), inner, f"{at}.{name}")


def _resolved(schema: Part) -> Part:
    name = schema.get("$ref", "").rpartition("/")[2]
    return document()["components"]["schemas"][name] if name else schema
