"""The workflows whose bodies run here: what is registered of them, and by whom their bodies are run."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Protocol

from aetheris.protocol.messages.commands import RegistryEntry
from aetheris.protocol.messages.event_values import CodeVersion, Outcome
from aetheris.protocol.planning.invocation import Invocation
from aetheris.runtime.base.refusal import ToolsRefused
from aetheris.sdk.isolation.kept_process import HostFailed, HostSetup
from aetheris.sdk.isolation.tools import NamesTools
from aetheris.sdk.loader import ToolboxError, sources_of, workflows_in
from aetheris.sdk.workflows.bodies import BodySaid, BodyStart, CallSettled
from aetheris.sdk.workflows.errors import StopReason
from aetheris.sdk.workflows.hosts import BodyHost
from aetheris.tool_executor.core.reports import NOT_EXECUTED
from aetheris.tool_executor.core.tries import CallRefusal

_MISSING = CallRefusal(Outcome.RETRYABLE, f"{NOT_EXECUTED}: workflow version missing")

Heard = Callable[[BodySaid], None]


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


class Workflows:
    """What can run here, and what its bodies say, which is given to whoever has begun them."""

    def __init__(self, idle_s: float = 30.0) -> None:
        """`idle_s`: how long a body may wait in memory; then it is begun anew when it can go on."""
        self.idle_s = idle_s
        self._entries: dict[tuple[str, str], RegistryEntry] = {}
        self._codes: dict[tuple[str, str], CodeVersion] = {}
        self._hosts: dict[tuple[str, str], RunsBodies] = {}
        self._listening: dict[str, Heard] = {}

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
        """What is registered of each."""
        return list(self._entries.values())

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
        else:
            self._listening[body] = heard

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
