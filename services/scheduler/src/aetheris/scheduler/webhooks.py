"""A delivery to a webhook becomes a job; it is answered once the gateway has taken that."""

import json
from collections.abc import Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from aetheris.runtime.base.clock import Clock
from aetheris.scheduler.core.deliveries import DeliveryRefused, delivery_of
from aetheris.scheduler.core.job_starts import delivery_key
from aetheris.scheduler.core.told_starts import StartSource
from aetheris.scheduler.job_writer import JobWriter
from aetheris.scheduler.loaded_starts import WebhookTrigger
from aetheris.sdk.keyed_jobs import NotTaken

MAX_BYTES = 256 * 1024
_RETRY_AFTER_S = 5


def webhooks(triggers: Mapping[str, WebhookTrigger], writer: JobWriter, clock: Clock) -> Starlette:
    """`POST /starts/NAME`, for each of them."""

    async def came(request: Request) -> Response:
        trigger = triggers.get(request.path_params["name"])
        if trigger is None:
            return _error(404, "unknown_webhook", "no webhook has this name")
        try:
            body = await _body(request)
        except ClientDisconnect:
            return Response(status_code=400)
        if body is None:
            return _error(413, "too_large", f"a delivery has at most {MAX_BYTES // 1024} KiB")
        try:
            delivery = delivery_of(trigger.key, request.headers, body, clock.now())
        except DeliveryRefused as refused:
            return _error(401, "not_signed", f"{refused}: is missing, not signed by the key, or not of now")
        return await _started(trigger, delivery, body)

    async def _started(trigger: WebhookTrigger, delivery: str, body: bytes) -> Response:
        name = trigger.entry.name
        source = StartSource("webhook", name)
        try:
            value: Any = json.loads(body)
        except (ValueError, RecursionError):
            writer.refused(source, {"webhook": name, "delivery": delivery}, "message")
            return _error(422, "message", "the body is no JSON")
        occasion = {"webhook": name, "delivery": delivery, "value": value}
        try:
            refusal = await writer.start(source, trigger.plan, occasion, delivery_key(name, delivery))
        except NotTaken:
            again = {"Retry-After": str(_RETRY_AFTER_S)}
            return _error(503, "not_taken", "the gateway takes nothing now: the same delivery again", again)
        if refusal is not None:
            return _error(422, refusal, "no job can be started by it: the scheduler's log says why")
        return JSONResponse({"webhook": name, "delivery": delivery}, 202)

    return Starlette(routes=[Route("/starts/{name}", came, methods=["POST"])])


async def _body(request: Request) -> bytes | None:
    """All of it; None where that is too much."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_BYTES:
            return None
    return bytes(body)


def _error(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse({"error": {"code": code, "message": message, "details": {}}}, status, headers)
