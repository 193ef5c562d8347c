"""Calls of a server's tools as jobs of the client's run: answered before the client gives up."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND

from aetheris.cli.mcp_proxy import proxied_answers as say
from aetheris.cli.mcp_proxy.proxied_tools import ProxiedTools
from aetheris.protocol.base.ids import NAME
from aetheris.sdk.call_port import CallableTool, CallPort, CallRefused, StillRunning
from aetheris.sdk.client import ApiError, AsyncClient, Conflict, Job, ResourceNotFound, Unreachable
from aetheris.sdk.toolkits.mcp.servers import ServersFileInvalid

MOST_RUNS = 1_000
"""That a connection calls in, one after the other."""
LONGEST_RUN = 200

_STEP = ("call",)
_TO_SAY_S = 0.4
"""Of the time to answer, what is left for the answer itself."""


class InvalidCall(Exception):
    """What is answered with an error of the protocol."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class ServerFailed(Exception):
    """The server has answered with an error, reads nothing, or is gone."""


@dataclass(frozen=True)
class ProxySettings:
    """What holds on each connection.

    Args:
        run: where neither the call, nor the request, nor the URL names another.
        answer_within_s: after which a call is answered with a task, or with "not finished yet".
    """

    run: str | None = None
    agent: str | None = None
    answer_within_s: float = 4.0


class ProxiedCalls:
    """Those of one connection, by one token."""

    def __init__(self, client: AsyncClient, tools: ProxiedTools, settings: ProxySettings) -> None:
        self._client = client
        self.tools = tools
        self._settings = settings
        self._ports: dict[str, CallPort] = {}
        self._own_run = secrets.token_hex(16)
        """Of a connection that belongs to no run: in it, too, an equal call is the same."""

    async def call(
        self,
        params: Mapping[str, Any],
        meta: Mapping[str, Any],
        request: Any,
        list_tools: Callable[[], Awaitable[None]],
        version: str | None,
    ) -> dict[str, Any]:
        """Make a call, and say what it came to, or that it goes on.

        Args:
            request: the HTTP request that it came with, if any.
            list_tools: has the server list its tools.
            version: of the protocol, where it was agreed upon.

        Raises:
            InvalidCall.
        """
        name, args = params.get("name"), params.get("arguments", {})
        if not isinstance(name, str) or not isinstance(args, dict | None):
            raise InvalidCall(INVALID_PARAMS, "name must be a text, and arguments an object")
        until_s = asyncio.get_running_loop().time() + self._settings.answer_within_s
        try:
            async with asyncio.timeout_at(until_s + _TO_SAY_S / 2):
                if not self.tools.has(name):
                    await list_tools()
                tool = self.tools.tool(name)
                run = self._run(meta, request)
                if tool.irreversible and run is None:
                    return say.refused(say.NO_RUN)
                as_task = version == say.VERSION_WITH_TASKS and isinstance(params.get("task"), dict)
                return await self._made(tool, cast("dict[str, Any]", args or {}), run, meta, until_s, as_task=as_task)
        except CallRefused as refused:
            return say.refused(str(refused))
        except (TimeoutError, Unreachable):
            return say.pending(None, structured=self.tools.is_structured(name))
        except ApiError as error:
            return say.refused(f"{error.code}: {error.message}. {say.THE_SAME}")
        except (ServerFailed, ServersFileInvalid) as error:
            raise InvalidCall(INTERNAL_ERROR, f"nothing was called: {error}") from None

    async def about_task(self, method: str, params: Mapping[str, Any], meta: Mapping[str, Any]) -> dict[str, Any]:
        """What is asked of a task: a job of one call, which whoever may see the job may see.

        Raises:
            InvalidCall.
        """
        modern = say.VERSION in meta
        asked = (modern, method)
        if asked not in {(True, "tasks/get"), (True, "tasks/cancel"), (False, "tasks/get"), (False, "tasks/result")}:
            raise InvalidCall(METHOD_NOT_FOUND, "the proxy's tasks have no such method")
        try:
            job = await self._job(params.get("taskId"))
            if method == "tasks/result":
                made = await self._port(None).outcome(job.job_id)
                return say.of_task(say.answered(made, structured=False), job.job_id)
            if method == "tasks/get":
                return say.task_state(job) if modern else say.task(job)
            with suppress(Conflict):  # it has ended: nothing is left to cancel
                await self._client.cancel(job.job_id, reason="its MCP client has cancelled the task")
        except ApiError as error:
            raise InvalidCall(INTERNAL_ERROR, f"{error.code}: {error.message}") from None
        return {}

    async def _made(
        self,
        tool: CallableTool,
        args: Mapping[str, Any],
        run: str | None,
        meta: Mapping[str, Any],
        until_s: float,
        *,
        as_task: bool,
    ) -> dict[str, Any]:
        port, repeat_of = self._port(run), meta.get(say.REPEAT_OF)
        given = repeat_of if isinstance(repeat_of, str) else None
        if as_task:
            return {"task": say.task(await self._client.job(await port.begin(tool, args, repeat_of=given)))}
        structured = self.tools.is_structured(tool.name.partition(".")[2])
        within_s = max(0.0, until_s - _TO_SAY_S - asyncio.get_running_loop().time())
        try:
            made = await port.call(tool, args, repeat_of=given, within_s=within_s)
        except StillRunning as running:
            job: Job | None = None
            with suppress(ApiError):
                job = await self._client.job(running.job_id)
            if job is not None and say.has_tasks(meta):
                return say.task_handle(job)
            return say.pending(job, structured=structured)
        return say.answered(made, structured=structured)

    async def _job(self, task_id: Any) -> Job:
        if isinstance(task_id, str) and NAME.fullmatch(task_id):
            with suppress(ResourceNotFound):
                job = await self._client.job(task_id)
                if tuple(step.node_id for step in job.steps) == _STEP:
                    return job
        raise InvalidCall(INVALID_PARAMS, "there is no such task")

    def _run(self, meta: Mapping[str, Any], request: Any) -> str | None:
        """The closest that names one: the call, its HTTP request, the URL, the proxy's own.

        Raises:
            CallRefused: it is no name.
        """
        of_request = (request.headers.get("aetheris-run"), request.query_params.get("run")) if request else ()
        for run in (meta.get(say.RUN), *of_request, self._settings.run):
            if run is None or run == "":
                continue
            if not isinstance(run, str) or len(run) > LONGEST_RUN or not run.isprintable():
                raise CallRefused(f"refused, and nothing was called: a run is named by up to {LONGEST_RUN} characters")
            return run
        return None

    def _port(self, run: str | None) -> CallPort:
        name = run or self._own_run
        if name not in self._ports:
            if len(self._ports) >= MOST_RUNS:
                del self._ports[next(iter(self._ports))]
            # what only reads is read anew after a start, as the server would have it
            reads = secrets.token_hex(16)
            self._ports[name] = CallPort(self._client, name, agent=self._settings.agent, reads=reads)
        return self._ports[name]
