"""Other clients' files of MCP servers, with `aetheris mcp proxy` put before each server, and back (docs/mcp.md).

A file is read as JSON, and written so; what it had is kept beside it, to the byte. A server that the proxy can't stand
before as it is written stays as it is, and is named.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from aetheris.protocol.base.faults import first_fault
from aetheris.sdk.toolkits.mcp.servers import McpServer

PLACES = (".mcp.json", ".cursor/mcp.json", ".vscode/mcp.json", "claude_desktop_config.json")
"""Where clients have a project's servers, and Claude Desktop its own."""
BACKUP = ".before-aetheris"
_BELOW = (".cursor", ".vscode")
_KEYS = ("mcpServers", "servers")
"""Under which key servers stand: VS Code has the second one."""
_NAME = re.compile(r"^[A-Za-z0-9_-]{1,32}$")
_OURS = ("mcp", "proxy")
_EXPANDED = re.compile(r"\$\{")
_KINDS = {None, "stdio", "http", "streamable-http", "streamableHttp"}


class ClientFileInvalid(Exception):
    """A client's file can't be changed; says which and why, never what is in it."""


@dataclass(frozen=True)
class ProxiedEntry:
    """A server of a client's file, and what becomes of it: proxied, was_proxied, restored, or why it stays."""

    file: Path
    server: str
    state: str


@dataclass(frozen=True)
class ClientFile:
    """A client's file, as it is."""

    path: Path
    text: str
    content: Mapping[str, Any]
    key: str

    @classmethod
    def read(cls, path: Path) -> "ClientFile":
        """Raises ClientFileInvalid: it can't be read as JSON, or has no servers."""
        try:
            text = path.read_text()
            content: Any = json.loads(text)
        except OSError as error:
            raise ClientFileInvalid(f"{path}: {error.strerror}") from None
        except ValueError:
            raise ClientFileInvalid(f"{path}: not readable as JSON; comments are none of it") from None
        key = next((key for key in _KEYS if isinstance(content, dict) and isinstance(content.get(key), dict)), None)
        if key is None:
            raise ClientFileInvalid(f"{path}: has no {' and no '.join(_KEYS)}")
        return cls(path, text, cast("dict[str, Any]", content), key)

    @property
    def servers(self) -> Mapping[str, Any]:
        """name → its entry."""
        return self.content[self.key]

    @property
    def backup(self) -> Path:
        """Where it is kept as it was."""
        return self.path.with_name(self.path.name + BACKUP)

    def with_servers(self, servers: Mapping[str, Any]) -> str:
        """Its text, with other servers."""
        return json.dumps({**self.content, self.key: servers}, indent=2, ensure_ascii=False) + "\n"


def why_not(name: str, entry: Any) -> str | None:
    """Why the proxy can't stand before a server; None: it can."""
    if not _NAME.fullmatch(name):
        return "stays: its name can't be that of a server (letters, digits, _ and -, up to 32)"
    if not isinstance(entry, dict):
        return "stays: it is no server"
    given = cast("dict[str, Any]", entry)
    if given.get("type") not in _KINDS:
        return f"stays: {str(given['type'])[:20]} is no transport that the proxy speaks"
    if _EXPANDED.search(json.dumps(given)):
        return "stays: ${…} in it is its client's; write the value, or name a secret"
    try:
        McpServer.model_validate(given)
    except ValidationError as error:
        return f"stays: {first_fault(error)[1]}"
    return None


def is_ours(entry: Any) -> bool:
    """Whether it is Aetheris already: the proxy, or its own server."""
    args = cast("dict[str, Any]", entry).get("args") if isinstance(entry, dict) else None
    return isinstance(args, list) and "mcp" in cast("list[Any]", args) and _is_aetheris(cast("dict[str, Any]", entry))


def proxied(name: str, command: Sequence[str], options: Sequence[str]) -> dict[str, Any]:
    """The entry that stands in a client's file from now on."""
    first, *rest = command
    return {"command": first, "args": [*rest, *_OURS, name, *options]}


def put(path: Path, text: str) -> None:
    """Write a file as a whole, as private as it was; a new one is its owner's.

    Raises:
        OSError.
    """
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with open(os.open(beside, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, mode), "w") as file:
        file.write(text)
    beside.replace(path)


def _is_aetheris(entry: Mapping[str, Any]) -> bool:
    args = [str(one) for one in entry["args"]]
    return Path(str(entry.get("command"))).name == "aetheris" or "aetheris.cli" in args


class ServersMoved:
    """The file of servers that executors read, while servers of clients' files come into it, or leave it.

    Raises:
        ClientFileInvalid: it is there, and is no such file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._content: dict[str, Any] = {}
        if path.exists():
            try:
                self._content = json.loads(path.read_text())
                self._servers = dict(self._content.get("mcpServers") or {})
            except (OSError, ValueError, AttributeError, TypeError):
                raise ClientFileInvalid(f"{path}: can't be read, or is no file of servers") from None
        else:
            self._servers = {}
        self._was = dict(self._servers)

    def takes(self, name: str, entry: Mapping[str, Any]) -> bool:
        """Whether the server is there now, with what its client has; False: another has its name."""
        held = self._servers.setdefault(name, dict(entry))
        return isinstance(held, dict) and all(cast("dict[str, Any]", held).get(key) == entry[key] for key in entry)

    def gives_back(self, name: str, entry: Any) -> None:
        """Forget a server to which nothing was added here."""
        if self._servers.get(name) == entry:
            del self._servers[name]

    def keep(self) -> None:
        """Write it, where it has changed. Raises OSError."""
        if self._servers != self._was:
            put(self.path, json.dumps({**self._content, "mcpServers": self._servers}, indent=2) + "\n")


def put_before(
    file: ClientFile, moved: ServersMoved, command: Sequence[str], options: Sequence[str]
) -> list[ProxiedEntry]:
    """Put the proxy before each server of a client's file; a second time changes nothing.

    Raises:
        OSError: something could not be written; a second time does the rest.
        ClientFileInvalid: its backup can't be read.
    """
    now, before = dict(file.servers), dict(_backed_up(file))
    entries: list[ProxiedEntry] = []
    for name, entry in file.servers.items():
        if is_ours(entry):
            entries.append(ProxiedEntry(file.path, name, "was_proxied"))
            continue
        why = why_not(name, entry)
        if why is None and not moved.takes(name, _at_home(entry, file.path)):
            why = f"stays: {moved.path.name} has another server of that name"
        if why is None:
            before[name] = entry
            now[name] = proxied(name, command, options)
        entries.append(ProxiedEntry(file.path, name, why or "proxied"))
    if any(one.state == "proxied" for one in entries):
        moved.keep()
        put(file.backup, file.with_servers(before) if file.backup.exists() else file.text)
        put(file.path, file.with_servers(now))
    return entries


def put_back(file: ClientFile, moved: ServersMoved) -> list[ProxiedEntry]:
    """Undo it: to the byte, where nobody has changed the file since.

    Raises:
        OSError, ClientFileInvalid: as above.
    """
    before, now = _backed_up(file), dict(file.servers)
    entries: list[ProxiedEntry] = []
    for name, entry in file.servers.items():
        if not is_ours(entry):
            continue
        if name in before and not is_ours(before[name]):
            now[name] = before[name]
            moved.gives_back(name, _at_home(before[name], file.path))
            entries.append(ProxiedEntry(file.path, name, "restored"))
        elif name not in before:
            entries.append(ProxiedEntry(file.path, name, "stays: it was not put here by `aetheris mcp discover`"))
    if file.backup.exists():
        kept = ClientFile.read(file.backup)
        same = {**file.content, file.key: now} == kept.content
        put(file.path, kept.text if same else file.with_servers(now))
        moved.keep()
        file.backup.unlink()
    return entries


def _backed_up(file: ClientFile) -> Mapping[str, Any]:
    return ClientFile.read(file.backup).servers if file.backup.exists() else {}


def _at_home(entry: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    """As an executor starts it, which is somewhere else: where a project's client would have."""
    if "command" not in entry or "cwd" in entry or path.name == PLACES[-1]:
        return entry
    folder = path.resolve().parent
    return {**entry, "cwd": str(folder.parent if folder.name in _BELOW else folder)}
