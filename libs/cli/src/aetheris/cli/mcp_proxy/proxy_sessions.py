"""The proxy over streamable HTTP: `/NAME/mcp` for each server, by the caller's own token of the gateway.

Whose session it is, the token says: it is asked of the gateway when a session begins and once a minute, goes with each
of its calls, and a session that is asked for with another token isn't there.
"""

import asyncio
import hashlib
import hmac
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass

from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.transport_security import RequestBodyLimitMiddleware
from mcp_types import INVALID_REQUEST, UNSUPPORTED_PROTOCOL_VERSION
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from aetheris.cli.mcp_proxy.proxied_calls import ProxySettings
from aetheris.cli.mcp_proxy.proxied_server import ProxiedServer
from aetheris.cli.mcp_proxy.proxied_tools import Tell
from aetheris.protocol.base.principals import Role
from aetheris.sdk.client import ApiError, AsyncClient, Unauthorized

MOST_SESSIONS = 1_000
MOST_SESSIONS_OF_ONE = 100
"""Of one token."""
IDLE_S = 1_800.0
KNOWN_FOR_S = 60.0
"""How long the gateway's word on a token holds for what doesn't go to the gateway."""
MOST_BODY_BYTES = 4 * 1024 * 1024

_SESSION = "mcp-session-id"
_VERSION = "mcp-protocol-version"
_CHALLENGE = {"www-authenticate": "Bearer"}

ClientOf = Callable[[str], AsyncClient]
"""A client of the gateway, by a token."""


class _Refused(Exception):
    """How a request is answered that goes no further."""

    def __init__(self, status: int, text: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers

    @property
    def answer(self) -> Response:
        error = {"code": INVALID_REQUEST, "message": str(self)}
        return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, self.status, self.headers)


@dataclass
class _Session:
    server: str
    owner: bytes
    transport: StreamableHTTPServerTransport
    known_until_s: float
    task: "asyncio.Task[None] | None" = None


class ProxySessions:
    """The app, and its sessions for as long as it runs.

    Args:
        origins: of the web pages that may speak to it; no other may, whatever token it has.
    """

    def __init__(
        self,
        servers: Mapping[str, ProxiedServer],
        client_of: ClientOf,
        settings: ProxySettings,
        tell: Tell,
        *,
        origins: Collection[str] = (),
    ) -> None:
        self._servers = servers
        self._client_of = client_of
        self._settings = settings
        self._tell = tell
        self._origins = frozenset(origins)
        self._sessions: dict[str, _Session] = {}

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[ASGIApp]:
        """The app; its sessions end with it."""
        try:
            yield RequestBodyLimitMiddleware(self._handle, MOST_BODY_BYTES)
        finally:
            tasks = [one.task for one in self._sessions.values() if one.task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        try:
            server = self._addressed(request)
            token = _token(request)
            _check_version(request)
            session = await self._session(request, server, token)
        except _Refused as refused:
            await refused.answer(scope, receive, send)
            return
        if _SESSION in request.headers:
            await session.transport.handle_request(scope, receive, send)
        else:
            await self._opened(session, scope, receive, send)

    def _addressed(self, request: Request) -> ProxiedServer:
        origin = request.headers.get("origin")
        if origin is not None and origin not in self._origins:
            raise _Refused(403, "a page of this origin may not speak to the proxy")
        name, _, rest = request.url.path.strip("/").partition("/")
        if rest != "mcp" or name not in self._servers:
            raise _Refused(404, "there is no such server: the path is /NAME/mcp")
        return self._servers[name]

    async def _session(self, request: Request, server: ProxiedServer, token: str) -> _Session:
        owner, session_id = hashlib.sha256(token.encode()).digest(), request.headers.get(_SESSION)
        if session_id is None:
            return await self._begun(server, token, owner)
        session = self._sessions.get(session_id)
        if session is None or session.server != server.name or not hmac.compare_digest(session.owner, owner):
            raise _Refused(404, "there is no such session")
        if time.monotonic() >= session.known_until_s:
            async with self._client_of(token) as client:
                await _check_may_call(client)
            session.known_until_s = time.monotonic() + KNOWN_FOR_S
        return session

    async def _begun(self, server: ProxiedServer, token: str, owner: bytes) -> _Session:
        own = sum(hmac.compare_digest(one.owner, owner) for one in self._sessions.values())
        if len(self._sessions) >= MOST_SESSIONS or own >= MOST_SESSIONS_OF_ONE:
            raise _Refused(503, "too many sessions are open")
        session_id = secrets.token_urlsafe(32)
        transport = StreamableHTTPServerTransport(session_id, idle_timeout=IDLE_S)
        session = _Session(server.name, owner, transport, time.monotonic() + KNOWN_FOR_S)
        self._sessions[session_id] = session  # before anything is awaited: it counts from now on
        client = self._client_of(token)
        try:
            await _check_may_call(client)
        except BaseException:
            del self._sessions[session_id]
            await client.close()
            raise
        begun = asyncio.Event()
        session.task = asyncio.create_task(self._serve(session_id, server, client, transport, begun))
        await begun.wait()
        return session

    async def _serve(
        self,
        session_id: str,
        server: ProxiedServer,
        client: AsyncClient,
        transport: StreamableHTTPServerTransport,
        begun: asyncio.Event,
    ) -> None:
        try:
            async with client, transport.connect() as streams:
                begun.set()
                with transport.idle_scope or nullcontext():
                    await server.serve(streams, client, self._settings, self._tell)
        except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001 - a session's end is its own
            self._tell(server.name, f"the connection has broken: {type(error).__name__}")
        finally:
            begun.set()
            self._sessions.pop(session_id, None)
            await transport.terminate()

    async def _opened(self, session: _Session, scope: Scope, receive: Receive, send: Send) -> None:
        """The request that begins a session: one that is refused began none."""
        status = 500

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await session.transport.handle_request(scope, receive, watched)
        finally:
            if status >= 400 and session.task is not None:
                session.task.cancel()


async def _check_may_call(client: AsyncClient) -> None:
    """Whether the token's holder may submit jobs.

    Raises:
        _Refused.
    """
    try:
        caller = await client.caller()
    except Unauthorized:
        raise _Refused(401, "the gateway knows no such token", _CHALLENGE) from None
    except ApiError as error:
        raise _Refused(503, f"the gateway can't be asked: {error.code}") from None
    if Role.SUBMIT not in caller.roles:
        raise _Refused(403, "who has this token may call no tools")


def _token(request: Request) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise _Refused(401, "a token of the gateway is needed: Authorization: Bearer …", _CHALLENGE)
    return token.strip()


def _check_version(request: Request) -> None:
    """The versions that have sessions; clients of later ones fall back to these."""
    version = request.headers.get(_VERSION)
    if version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS:
        raise _OtherVersion(version)


class _OtherVersion(_Refused):
    def __init__(self, version: str) -> None:
        super().__init__(400, "this version of the protocol isn't served over HTTP")
        self._version = version

    @property
    def answer(self) -> Response:
        data = {"supported": list(HANDSHAKE_PROTOCOL_VERSIONS), "requested": self._version[:40]}
        error = {"code": UNSUPPORTED_PROTOCOL_VERSION, "message": str(self), "data": data}
        return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, self.status)
