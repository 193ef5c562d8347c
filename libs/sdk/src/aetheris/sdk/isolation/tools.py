"""Tools that are called in processes of their own, with the checks and bounds of those that are called here."""

from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal, Protocol

from aetheris.sdk.context import ProbeContext, ToolContext
from aetheris.sdk.isolation import kernel, said
from aetheris.sdk.isolation.errors import RaisedElsewhere
from aetheris.sdk.isolation.frames import BadFrame
from aetheris.sdk.isolation.hosts import Host, Relay
from aetheris.sdk.isolation.kept_process import HostFailed, HostSetup
from aetheris.sdk.loader import Toolbox, ToolboxError, load, sources_of
from aetheris.sdk.outcomes import Answer, Partial, Result, StateChange, Unknown, Verdict
from aetheris.sdk.schema import DeclarationError, GivenSchema, given_schema
from aetheris.sdk.tools import AnyTool, Tool

ENDING_S = 5.0
"""By then a call's process that took too long has been killed, and what is known of its end is known."""
_SECRETS: ContextVar[Mapping[str, str]] = ContextVar("secrets")


class GivenSecrets:
    """In the block, a call's process is told these secrets' values, so that it takes them out of what it says.

    There is one for each call: a generator's context would take three times as long.
    """

    __slots__ = ("_token", "_values")

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def __enter__(self) -> None:
        self._token = _SECRETS.set(self._values)

    def __exit__(self, *_: object) -> None:
        _SECRETS.reset(self._token)


class NamesTools(Protocol):
    """A service's settings: where its tools come from, and where they run."""

    tools: tuple[str, ...]
    """Modules; without one, every entry point of the group."""
    tools_folder: Path | None
    tool_isolation: Literal["none", "process"]
    """process: of all; none: of those tools alone that ask for it."""
    tool_env: tuple[str, ...]
    tool_user: str | None

    @property
    def credential_files(self) -> tuple[Path, ...]:
        """The service's own, which no tool is to read."""
        ...


def imported(named: NamesTools, refused: type[Exception]) -> Toolbox | None:
    """The tools; None where other processes are to import them.

    Raises:
        refused: one can't be loaded; in its words.
    """
    if named.tool_isolation == "process":
        return None
    try:
        return load(",".join(named.tools), named.tools_folder)
    except ToolboxError as fault:
        raise refused(str(fault)) from None


def readable_credentials(named: NamesTools) -> Collection[str]:
    """The service's files of credentials that tools in processes of their own can read all the same."""
    if named.tool_isolation == "none" or named.tool_user:
        return ()
    return kernel.stay_open([str(one) for one in named.credential_files])


@asynccontextmanager
async def all_tools(
    named: NamesTools, here: Toolbox | None, relay: Relay, refused: type[Exception]
) -> AsyncGenerator[Toolbox]:
    """Those that are imported `here`, and those with processes of their own, as long as these are wanted.

    Raises:
        refused: their processes can't be started, or can't load them; in its words.
    """
    given = HostSetup(named.tool_env, named.tool_user or None, named.credential_files)
    async with AsyncExitStack() as closing:
        try:
            tools = isolated_tools(here, ",".join(named.tools), named.tools_folder, given, relay)
            found = await closing.enter_async_context(tools)
        except ToolboxError as fault:
            raise refused(str(fault)) from None
        yield found


@asynccontextmanager
async def isolated_tools(
    here: Toolbox | None, modules: str, folder: Path | None, given: HostSetup, relay: Relay
) -> AsyncGenerator[Toolbox]:
    """The tools of the modules, for as long as their processes are wanted: one for each module, and one for each call.

    Args:
        here: what this process has imported; of these, only the tools that ask for it get processes. None: it has
            imported nothing, and all of them do.

    Raises:
        ToolboxError: a module can't be loaded, or says what can't be registered.
    """
    sources, alone = sources_of(modules), frozenset[str]()
    if here is not None:
        alone = frozenset(tool.key for tool in here if tool.isolation == "process")
        if not alone:
            yield here
            return
        sources = [source for source in sources if any(tool.key in alone for tool in load(source, folder))]
    found: dict[str, AnyTool] = {}
    async with AsyncExitStack() as closing:
        for source in sources:
            host = Host(source, folder, given, relay)
            closing.push_async_callback(host.close)
            try:
                entries = await host.start()
            except HostFailed as error:
                raise ToolboxError(str(error)) from None
            for one in entries:
                tool = _tool(source, host, one)
                if here is not None and tool.key not in alone:
                    continue
                if tool.key in found:
                    raise ToolboxError(f"{source}: declares {tool.key}, and so does another module: rename one")
                found[tool.key] = tool
        yield Toolbox(({tool.key: tool for tool in here} if here is not None else {}) | found)


class _Unbound(GivenSchema):
    """Arguments are bound where the function is: what doesn't fit is said in its words."""

    def bind(self, args: Mapping[str, Any]) -> dict[str, Any]:
        return dict(args)


def _tool(source: str, host: Host, described: Mapping[str, Any]) -> AnyTool:
    """A tool as its process describes it: an entry that it could not have itself is refused.

    Raises:
        ToolboxError.
    """
    try:
        entry: dict[str, Any] = dict(described["entry"])
        key = f"{entry['name']}@{entry['version']}"
        schema = given_schema(entry["schema"], key)
        tool = Tool(
            _function(source, host, key, entry),
            name=entry["name"],
            version=entry["version"],
            effect_class=entry["effect_class"],
            irreversible=entry["irreversible"],
            timeout_s=entry["timeout_s"],
            settles_within_s=entry["settles_within_s"],
            volatile=entry["volatile"],
            on_in_doubt=entry["on_in_doubt"],
            duplicate_scope=entry["duplicate_scope"],
            duplicate_window_s=entry["duplicate_window_s"],
            probe=_probe(host, key) if entry["probe"] else None,
            schema=_Unbound(schema.schema, schema.schema_hash),
            kind=described["kind"],
            isolation="process",
        )
        tool.ending_s = ENDING_S
        if entry["verifier"]:
            tool.verifier(_verifier(host, key))
        same = tool.registry_entry() == entry
    except (LookupError, TypeError, ValueError, DeclarationError) as error:
        raise ToolboxError(f"{source}: its process describes a tool that can't be: {type(error).__name__}") from None
    if not same:
        raise ToolboxError(f"{source}: its process describes {key} otherwise than it can be registered")
    return tool


def _function(source: str, host: Host, key: str, entry: Mapping[str, Any]) -> Callable[..., Any]:
    timeout_s = float(entry["timeout_s"])

    async def function(ctx: ToolContext, /, **arguments: Any) -> Result | Partial:
        within_s = min(timeout_s, ctx.remaining())
        came = await host.ask("tool", key, ctx, within_s, args=arguments, secrets=_SECRETS.get({}))
        try:
            return said.outcome(came.said, traceback=came.traceback, acts_no_more=came.ended)
        except BadFrame:
            raise RaisedElsewhere("ToolProcessUnreadable") from None

    function.__doc__ = str(entry["description"])
    function.__module__ = source.partition(":")[0]
    return function


def _probe(host: Host, key: str) -> Callable[..., Any]:
    async def asks(external_key: str, ctx: ProbeContext) -> Answer:  # noqa: ARG001 - the context has it
        came = await host.ask("probe", key, ctx, ctx.remaining())
        try:
            return said.answer(came.said, traceback=came.traceback)
        except BadFrame:
            return Unknown("the probe's process says what is no answer")

    return asks


def _verifier(host: Host, key: str) -> Callable[..., Any]:
    async def verifies(change: StateChange, ctx: ProbeContext) -> Verdict:
        came = await host.ask("verifier", key, ctx, ctx.remaining(), change=change.payload())
        try:
            return said.verdict(came.said, traceback=came.traceback)
        except BadFrame:
            return Unknown("the verifier's process says what is no verdict")

    return verifies
