"""What a server said of its tools when somebody looked: a tool that says something else since then is not called.

A server that nobody has pinned is pinned as it is found first. The pins lie beside the file of servers, as a lock file
does: `servers.json` has `servers.pins.json`, {"pins": {server: {tool: hex SHA-256}}}.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mcp_types import Tool as ListedTool
from pydantic import BaseModel, ConfigDict, ValidationError

from aetheris.protocol.base.canonical import InvalidArgs, digest
from aetheris.sdk.toolkits.mcp.servers import ServersFileInvalid

_SAID = {"name", "title", "description", "input_schema", "output_schema", "annotations"}
NONE = ""
"""The fingerprint of what has none, and is like nothing."""


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    pins: dict[str, dict[str, str]]


class PinsFileInvalid(ServersFileInvalid):
    """The file of pins can't be used: mend it, or make it anew by `aetheris mcp pin`."""


def fingerprint(tool: ListedTool) -> str:
    """hex SHA-256(JCS(all that a server says of a tool: name, title, description, schemas, annotations))."""
    try:
        return digest(tool.model_dump(mode="json", by_alias=True, exclude_none=True, include=_SAID))
    except (InvalidArgs, RecursionError):
        return NONE


class Pins:
    """Those of one file of servers."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @classmethod
    def beside(cls, servers: Path) -> "Pins":
        """Those of a file of servers."""
        return cls(servers.with_suffix(".pins.json"))

    def of(self, server: str) -> Mapping[str, str] | None:
        """tool → fingerprint; None where nobody has pinned the server.

        Raises:
            PinsFileInvalid.
        """
        return self.read().get(server)

    def read(self) -> dict[str, dict[str, str]]:
        """All of them.

        Raises:
            PinsFileInvalid.
        """
        try:
            return _File.model_validate_json(self._path.read_bytes()).pins
        except FileNotFoundError:
            return {}
        except (OSError, ValidationError):
            raise PinsFileInvalid(f"{self._path}: can't be read, or is no file of pins") from None

    def keep(self, server: str, found: Mapping[str, str]) -> None:
        """Pin a server's tools as they are; what was pinned of it before is forgotten.

        Raises:
            OSError: the file can't be written.
            PinsFileInvalid.
        """
        content: dict[str, Any] = {"pins": {**self.read(), server: dict(sorted(found.items()))}}
        beside = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        beside.write_text(json.dumps(content, indent=2) + "\n")
        beside.replace(self._path)
