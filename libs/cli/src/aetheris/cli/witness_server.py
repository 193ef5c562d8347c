"""The HTTP of a witness (C2SP tlog-witness): `POST /add-checkpoint`, and `GET /HASH/checkpoint` of each log."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from aetheris.cli.console import progress
from aetheris.cli.witness_state import WitnessState, file_name
from aetheris.proofs.checkpoint_growth import check_growth, read_addition
from aetheris.proofs.notes import BadNote
from aetheris.proofs.seals import SigningKey
from aetheris.proofs.witnesses import NoteKey, cosign

MAX_BODY = 64 * 1024
"""Bytes of a posted checkpoint with its proof; one has some 3,000."""
_STATUS = {
    "unknown_log": 404,
    "checkpoint_unknown_log": 403,
    "checkpoint_signature": 403,
    "other_size": 409,
    "not_consistent": 422,
}
_MALFORMED, _TOO_LARGE = 400, 413


async def _alive(_request: Request) -> Response:
    return PlainTextResponse("alive\n")


class WitnessServer:
    """Cosigns what only grew; `now` in seconds since the epoch."""

    def __init__(
        self, state: WitnessState, private_key: SigningKey, logs: Sequence[NoteKey], now: Callable[[], float]
    ) -> None:
        self._state, self._private_key, self._logs, self._now = state, private_key, logs, now
        self._origins = {file_name(log.name): log.name for log in logs}

    def app(self) -> Starlette:
        """The ASGI app."""
        routes = [
            Route("/add-checkpoint", self._add, methods=["POST"]),
            Route("/{origin_hash}/checkpoint", self._checkpoint, methods=["GET"]),
            Route("/livez", _alive, methods=["GET"]),
        ]
        return Starlette(routes=routes)

    async def _add(self, request: Request) -> Response:
        body = bytearray()
        try:
            async for part in request.stream():
                body += part
                if len(body) > MAX_BODY:
                    return PlainTextResponse("too large\n", _TOO_LARGE)
        except ClientDisconnect:
            return Response(status_code=_MALFORMED)
        try:
            return PlainTextResponse(self._cosigned(bytes(body)))
        except BadNote as error:
            if error.rule == "other_size":
                last = self._state.last(read_addition(bytes(body), self._logs).checkpoint.origin)
                size = last.size if last is not None else 0
                return Response(f"{size}\n", 409, headers={"content-type": "text/x.tlog.size"})
            return PlainTextResponse(f"{error.rule}: {error.message}\n", _STATUS.get(error.rule, _MALFORMED))

    def _cosigned(self, body: bytes) -> str:
        """Without an await: no other checkpoint comes between the comparison and what is kept."""
        added = read_addition(body, self._logs)
        checkpoint = added.checkpoint
        try:
            check_growth(added, self._state.last(checkpoint.origin))
        except BadNote as error:
            if error.rule == "not_consistent":
                progress("refused", f"{checkpoint.origin}, {checkpoint.size} leaves: {error.message}")
            raise
        line = cosign(checkpoint.note, self._state.key.name, self._private_key, int(self._now()))
        self._state.keep(replace(checkpoint, note=checkpoint.note + line))
        return line

    async def _checkpoint(self, request: Request) -> Response:
        origin = self._origins.get(request.path_params["origin_hash"])
        last = self._state.last(origin) if origin is not None else None
        return PlainTextResponse(last.note) if last is not None else Response(status_code=404)
