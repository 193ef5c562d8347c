"""The HTTP API as OpenAPI 3.1 (docs/openapi.json), from the routes and the models of `aetheris.protocol.api`."""

from collections.abc import Iterator
from typing import Any

from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from aetheris.gateway.core.access import OPEN, ROUTES
from aetheris.gateway.http_api import ROUTERS
from aetheris.gateway.routes import probes, submission
from aetheris.protocol import api, api_dead_letters, api_operations, api_schedules, api_sessions
from aetheris.protocol.api_models import RequestModel

_BODIES: tuple[type[RequestModel], ...] = (
    api.Submission,
    api.ContinuationBody,
    api.CancelBody,
    api.ReasonBody,
    api.SignalBody,
    api.ResolveBody,
    api.RespondBody,
    api.RequestBody,
    api.WorkerEndBody,
    api.ToolReleaseBody,
    api_dead_letters.RedriveBody,
    api_operations.FreezeBody,
    api_operations.UndoBody,
    api_operations.PolicyBody,
    api_operations.PolicyTrialBody,
    api_operations.SubjectBody,
    api_operations.RulesBody,
    api_schedules.SchedulerReport,
    api_sessions.SessionAttachBody,
    api_sessions.SessionCallBody,
    api_sessions.SessionCompleteBody,
)
_REFUSED = "An answer other than yes; 503 may be asked again after Retry-After"
_UNUSED = ("HTTPValidationError", "ValidationError")
"""What FastAPI would answer by itself; a refusal of this API has one shape."""


def openapi() -> dict[str, Any]:
    """The document."""
    document = get_openapi(
        title="Aetheris",
        version="1",
        description="The gateway's HTTP API; docs/http-api.md says what each answer means.",
        routes=[submission.described, *(route for router in (*ROUTERS, probes.router) for route in router.routes)],
    )
    _, described = models_json_schema(
        [(kind, "validation") for kind in (*_BODIES, api.Refusal)], ref_template="#/components/schemas/{model}"
    )
    components = document["components"]
    schemas = components["schemas"] | described["$defs"]
    components["schemas"] = {name: schemas[name] for name in sorted(schemas) if name not in _UNUSED}
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for route, operation in _operations(document):
        operation["responses"].pop("422", None)
        operation["responses"]["default"] = _refusal()
        access = ROUTES[route]
        operation["security"] = [] if access is OPEN else [{"token": []}]
        if access is not OPEN:
            operation["x-roles"] = [role.value for role in access.roles]
    return document


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def _refusal() -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Refusal"}
    return {"description": _REFUSED, "content": {"application/json": {"schema": schema}}}
