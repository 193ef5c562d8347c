"""What MCP servers say of their tools now, beside what was pinned (docs/mcp.md)."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from aetheris.cli.console import CommandError, Exit
from aetheris.runtime.base.refusal import StartRefused
from aetheris.runtime.process.settings import load
from aetheris.tool_executor.secret_store import SecretRefused, Secrets, SecretUnreadable, secrets_of
from aetheris.tool_executor.settings import ExecutorSettings

if TYPE_CHECKING:
    from mcp_types import Tool as ListedTool

    from aetheris.sdk.toolkits.mcp import Pins


@dataclass(frozen=True)
class PinComparison:
    """One tool of a server: new, same, changed or gone; and what the server says of it."""

    server: str
    tool: str
    state: str
    annotations: Mapping[str, bool | str]
    description: str


@dataclass(frozen=True)
class PinComparisons:
    """What was found; `unreachable` says why of servers that did not answer."""

    tools: tuple[PinComparison, ...]
    unreachable: Mapping[str, str]
    found: "Mapping[str, Sequence[ListedTool]]"
    pins: "Pins"

    @property
    def differs(self) -> bool:
        """Whether anything is not as it was pinned."""
        return any(one.state != "same" for one in self.tools)

    def keep(self) -> None:
        """Pin it as it is; servers that did not answer keep their pins.

        Raises: CommandError.
        """
        from aetheris.sdk.toolkits.mcp import fingerprint  # noqa: PLC0415  a second

        try:
            for server, listed in self.found.items():
                self.pins.keep(server, {tool.name: fingerprint(tool) for tool in listed})
        except OSError as error:
            raise CommandError(
                Exit.FAILED, "pins_not_written", f"the pins can't be written: {error.strerror}"
            ) from None


@dataclass(frozen=True)
class ServersFile:
    """A file of MCP servers, and the secrets that its settings may name."""

    path: Path
    secrets: Secrets


def servers_file(path: Path | None = None) -> ServersFile:
    """The one that is named, else the one that AETHERIS_MCP names.

    Raises: CommandError.
    """
    settings = load(ExecutorSettings)
    path = path or settings.mcp
    if path is None:
        raise CommandError(Exit.BAD_INPUT, "no_mcp_servers", "no MCP servers: name their file by mcp in aetheris.toml")
    if find_spec("httpx2") is None:
        wanted = "install aetheris-tool-executor[mcp] to use MCP servers"
        raise CommandError(Exit.BAD_INPUT, "mcp_not_installed", wanted)
    try:
        return ServersFile(path, secrets_of(settings.secrets))
    except StartRefused as refused:
        raise CommandError(Exit.BAD_INPUT, "mcp_servers_refused", str(refused)) from None


def look() -> PinComparisons:
    """Ask every server of the file that AETHERIS_MCP names.

    Raises: CommandError.
    """
    file = servers_file()
    from aetheris.sdk.toolkits import mcp  # noqa: PLC0415  a second

    try:
        servers = mcp.read_servers(file.path)
        pins = mcp.Pins.beside(file.path)
        pinned = pins.read()
        asked = asyncio.run(mcp.listed(servers, file.secrets.of_settings))
    except (mcp.ServersFileInvalid, StartRefused, SecretRefused, SecretUnreadable) as refused:
        raise CommandError(Exit.BAD_INPUT, "mcp_servers_refused", str(refused)) from None
    unreachable = {name: str(said) for name, said in asked.items() if isinstance(said, Exception)}
    found = {name: said for name, said in asked.items() if not isinstance(said, Exception)}
    looks = (one for name, listed in found.items() for one in _looks(name, listed, pinned.get(name, {})))
    return PinComparisons(tuple(looks), unreachable, found, pins)


def _looks(server: str, listed: "Sequence[ListedTool]", pinned: Mapping[str, str]) -> Iterator[PinComparison]:
    from aetheris.sdk.toolkits.mcp import fingerprint  # noqa: PLC0415  a second

    for tool in listed:
        now, was = fingerprint(tool), pinned.get(tool.name)
        state = "new" if was is None else "same" if now == was else "changed"
        hints = tool.annotations.model_dump(mode="json", by_alias=True, exclude_none=True) if tool.annotations else {}
        yield PinComparison(server, tool.name, state, hints, tool.description or "")
    for name in sorted(pinned.keys() - {tool.name for tool in listed}):
        yield PinComparison(server, name, "gone", {}, "")
