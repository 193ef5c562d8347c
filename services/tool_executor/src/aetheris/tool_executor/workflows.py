"""The workflows whose bodies run here: what is registered of them, and by whom their bodies are run."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Protocol

from aetheris.protocol.messages.commands import RegistryEntry
from aetheris.protocol.messages.event_values import CodeVersion, Outcome
from aetheris.protocol.planning.goals import GOAL_ENTRY
from aetheris.protocol.planning.invocation import Invocation
from aetheris.protocol.planning.sessions import SESSION_ENTRY
from aetheris.runtime.base.refusal import ToolsRefused
from aetheris.sdk.context import ToolContext
from aetheris.sdk.isolation.kept_process import HostFailed, HostSetup
from aetheris.sdk.isolation.tools import NamesTools
from aetheris.sdk.loader import Toolbox, ToolboxError, sources_of, workflows_in
from aetheris.sdk.outcomes import NotExecuted, Partial, Result
from aetheris.sdk.workflows.bodies import BodySaid, BodyStart, CallSettled
from aetheris.sdk.workflows.child_jobs import job_tools
from aetheris.sdk.workflows.errors import StopReason
from aetheris.sdk.workflows.hosts import BodyHost
from aetheris.sdk.workflows.local_calls import local_tools
from aetheris.tool_executor.core.reports import NOT_EXECUTED
from aetheris.tool_executor.core.tries import CallRefusal
from aetheris.tool_executor.goal_bodies import GoalBodies
from aetheris.tool_executor.session_bodies import SessionBodies

_MISSING = CallRefusal(Outcome.RETRYABLE, f"{NOT_EXECUTED}: workflow version missing", is_missing=True)

BUILT_IN = frozenset({SESSION_ENTRY.key, GOAL_ENTRY.key})

Heard = Callable[[BodySaid], None]
_ASKED_WITHIN_S = 30.0


class RunsBodies(Protocol):
    """Runs the bodies of a module's workflows, in a process of their own."""

    async def begin(self, start: BodyStart, history: Sequence[CallSettled] = ()) -> None:
        """Run one from its beginning, over what is recorded."""
        ...

    def settled(self, body: str, settled: Sequence[CallSettled]) -> None:
        """Tell it how calls have settled."""
        ...

    def stop(self, body: str, why: StopReason) -> None:
        """Let it call nothing any more."""
        ...

    async def make(self, body: str, node_id: str) -> Result | Partial:
        """Make a call whose function is the workflow's own, as its body has asked for it."""
        ...


class Workflows:
    """What can run here, and what its bodies say, which is given to whoever has begun them."""

    def __init__(self, idle_s: float = 30.0) -> None:
        """`idle_s`: how long a body may wait in memory; then it is begun anew when it can go on."""
        self.idle_s = idle_s
        self._entries: dict[tuple[str, str], RegistryEntry] = {}
        self._codes: dict[tuple[str, str], CodeVersion] = {}
        self._hosts: dict[tuple[str, str], RunsBodies] = {}
        self._listening: dict[str, Heard] = {}
        self._local: dict[tuple[str, str], tuple[RunsBodies, str]] = {}
        """Job and node of calls whose functions are workflows' own → the body that has asked for it, and where."""
        self._asked_by: dict[str, list[tuple[str, str]]] = {}
        self._asked = asyncio.Event()
        """Set, and made anew, where one is asked for."""
        self.add(SessionBodies(self.heard), SESSION_ENTRY.model_dump(mode="json"))
        self.add(GoalBodies(self.heard), GOAL_ENTRY.model_dump(mode="json"))

    def add(self, host: RunsBodies, described: Mapping[str, Any]) -> None:
        """A workflow as its module describes it: a registry entry, and `ref`.

        Raises:
            ValueError: it is no such entry, or one of that name and version is there.
        """
        entry = RegistryEntry.model_validate({name: one for name, one in described.items() if name != "ref"})
        name = (entry.name, entry.version)
        if entry.kind != "workflow" or entry.code_hash is None or name in self._entries:
            raise ValueError(f"{entry.key} is no workflow, or stands twice")
        self._entries[name], self._hosts[name] = entry, host
        self._codes[name] = CodeVersion(
            ref=str(described.get("ref", entry.name)), version=entry.version, hash=entry.code_hash
        )

    def registry(self) -> Sequence[RegistryEntry]:
        """What is registered of each, but for those that are built in."""
        return [one for one in self._entries.values() if one.key not in BUILT_IN]

    def tools(self) -> Toolbox:
        """What makes their own functions' calls, and has other jobs begin, where there are any."""
        return Toolbox({one.key: one for one in (*local_tools(self.make), *job_tools())} if self.registry() else {})

    def refuses(self, call: Invocation) -> CallRefusal | None:
        """Why a workflow can't run here."""
        entry, pin = self._entries.get(_name(call)), call.entry.pin
        if entry is None or pin is None or entry.schema_hash != pin.schema_hash:
            return _MISSING
        return None

    def code(self, call: Invocation) -> CodeVersion | None:
        """The code of a workflow that runs here."""
        return self._codes.get(_name(call))

    def host_of(self, call: Invocation) -> RunsBodies:
        """Who runs its bodies.

        Raises:
            KeyError: nobody here.
        """
        return self._hosts[_name(call)]

    def listen(self, body: str, heard: Heard | None) -> None:
        """Whom to tell what a body says; None: nobody any more."""
        if heard is None:
            self._listening.pop(body, None)
            for call in self._asked_by.pop(body, ()):
                if call in self._local and self._local[call][1] == body:
                    del self._local[call]
        else:
            self._listening[body] = heard

    def local_asked(self, job_id: str, node_id: str, host: RunsBodies, body: str) -> None:
        """A body that runs here has asked for a call whose function is its own."""
        self._local[job_id, node_id] = (host, body)
        self._asked_by.setdefault(body, []).append((job_id, node_id))
        self._asked.set()
        self._asked = asyncio.Event()

    async def make(self, ctx: ToolContext) -> Result | Partial:
        """Make such a call, where its body runs; that may have to ask for it first.

        Raises:
            NotExecuted: none has within a while.
            Failed, RaisedElsewhere: as the function has.
        """
        try:
            async with asyncio.timeout(_ASKED_WITHIN_S):
                while (ctx.job_id, ctx.node_id) not in self._local:
                    await self._asked.wait()
        except TimeoutError:
            raise NotExecuted("its body does not run here") from None
        host, body = self._local[ctx.job_id, ctx.node_id]
        return await host.make(body, ctx.node_id)

    def heard(self, said: BodySaid) -> None:
        """A body says something."""
        listener = self._listening.get(said.body)
        if listener is not None:
            listener(said)


def _name(call: Invocation) -> tuple[str, str]:
    return call.entry.node.tool or "", call.entry.tool_version


@asynccontextmanager
async def hosted_workflows(named: NamesTools, idle_s: float, *, imported: bool) -> AsyncGenerator[Workflows]:
    """The workflows of the named modules, each module's in a process of its own, as long as they are wanted.

    Args:
        imported: this process has imported the modules, and sees by itself which have any.

    Raises:
        ToolsRefused: a module's can't be loaded, or registered.
    """
    given = HostSetup(named.tool_env, named.tool_user or None, named.credential_files)
    found = Workflows(idle_s)
    async with AsyncExitStack() as closing:
        for source in sources_of(",".join(named.tools)):
            try:
                if imported and not workflows_in(source, named.tools_folder):
                    continue
                host = BodyHost(source, named.tools_folder, given, found.heard)
                closing.push_async_callback(host.close)
                described = await host.start()
                for one in described:
                    found.add(host, one)
            except (ToolboxError, HostFailed, ValueError) as fault:
                raise ToolsRefused(f"{source}: {fault}") from None
            if not described:
                await host.close()
        yield found
