"""The gateway, asked with the person's own token: answers come as bytes, so that no number is changed on its way."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from aetheris.protocol.api import CallerView
from aetheris.sdk.client import ApiError, Unreachable, calls
from aetheris.sdk.client.errors import checked, good, unreachable

_SILENCE_S = 60.0


class GatewayClient:
    """One pool of connections for all sessions; it holds no token."""

    def __init__(self, url: str, ca: Path | None, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._http = httpx.AsyncClient(
            base_url=f"{url.rstrip('/')}/api",
            timeout=calls.TIMEOUT_S,
            verify=calls.trusted(url, ca),
            transport=transport,
            trust_env=False,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def caller(self, token: str) -> CallerView:
        """Whose token it is; raises ApiError (Unauthorized: nobody's)."""
        return CallerView.model_validate_json(await self.get(token, "/caller"))

    async def get(self, token: str, path: str, params: Mapping[str, Any] | None = None) -> bytes:
        """An answer's very bytes; raises ApiError."""
        return good(await self._send(token, "GET", path, params=_given(params))).content

    async def read(self, token: str, path: str, params: Mapping[str, Any] | None = None) -> Any:
        """An answer's JSON, for what holds no number that matters; raises ApiError."""
        return checked(await self._send(token, "GET", path, params=_given(params)))

    async def post(self, token: str, path: str, body: str) -> Any:
        """What is said to a JSON text, which goes as it is; raises ApiError."""
        headers = {"content-type": "application/json"}
        return checked(await self._send(token, "POST", path, content=body.encode(), headers=headers))

    @asynccontextmanager
    async def stream(self, token: str, path: str, headers: Mapping[str, str]) -> AsyncGenerator[httpx.Response]:
        """An answer that comes in parts; raises ApiError."""
        headers = {**_bearer(token), **headers}
        timeout = httpx.Timeout(calls.TIMEOUT_S, read=_SILENCE_S)
        try:
            async with self._http.stream("GET", path, headers=headers, timeout=timeout) as answer:
                if answer.status_code != 200:
                    await answer.aread()
                    checked(answer)
                yield answer
        except httpx.TransportError as error:
            raise unreachable(error) from None

    async def _send(self, token: str, method: str, path: str, **arguments: Any) -> httpx.Response:
        arguments["headers"] = {**_bearer(token), **arguments.get("headers", {})}
        try:
            return await self._http.request(method, path, **arguments)
        except httpx.TransportError as error:
            raise unreachable(error) from None


def is_away(error: ApiError) -> bool:
    """Whether nobody could answer: what was asked may have been taken."""
    return isinstance(error, Unreachable)


def _bearer(token: str) -> dict[str, str]:
    return dict(calls.bearer(token))


def _given(params: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (params or {}).items() if value not in (None, "")}
