"""The file of MCP servers: the `mcpServers` that other clients have, with what is known of their tools beside it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from aetheris.protocol.base.faults import first_fault, json_line, like, no_such_key, placed
from aetheris.protocol.base.references import SecretUse, pointer_part
from aetheris.sdk.tools import OnInDoubt

ServerName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,32}$")]


class ServersFileInvalid(Exception):
    """The file of MCP servers can't be used; the message names the field, never a value."""


class SecretName(BaseModel):
    """`{"$secret": "name@version"}`, where a server needs a password."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(alias="$secret", pattern=r"^[A-Za-z0-9_.-]{1,64}@[A-Za-z0-9_.-]{1,64}$")


Setting = str | SecretName


class Declared(BaseModel):
    """What the operator says of one tool; it goes before the server's own annotations."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    effect_class: Literal["pure", "idempotent", "opaque"] | None = None
    irreversible: bool | None = None
    timeout_s: float | None = Field(default=None, gt=0)
    on_error: Literal["partial", "result"] | None = None
    on_in_doubt: OnInDoubt | None = None
    external_key: str | None = Field(default=None, min_length=1, description="The argument that is given the key")
    volatile: tuple[str, ...] = ()
    hidden: bool = False


class McpServer(BaseModel):
    """One server: a command that speaks on its stdin and stdout, or the URL of a streamable HTTP endpoint."""

    model_config = ConfigDict(extra="ignore", frozen=True)  # other clients keep settings of their own here

    command: str | None = Field(default=None, min_length=1)
    args: tuple[str, ...] = ()
    env: Mapping[str, Setting] = Field(default_factory=dict)
    cwd: Path | None = None
    log: Path | None = None
    url: str | None = Field(default=None, pattern=r"^https?://")
    headers: Mapping[str, Setting] = Field(default_factory=dict)
    annotations: Literal["trusted", "ignored"] = "ignored"
    version: str = Field(default="1", pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    timeout_s: float = Field(default=60.0, gt=0)
    start_within_s: float = Field(default=60.0, gt=0)
    on_error: Literal["partial", "result"] = "partial"
    most_bytes: int = Field(default=1024 * 1024, ge=1, description="Of an answer, as it is recorded")
    tools: Mapping[str, Declared] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _is_no_slip(cls, given: Any) -> Any:
        """Other clients' settings pass; what looks like one of ours, and is none, was meant to be it."""
        names = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
        for key in names:
            if key not in cls.model_fields and like(key, cls.model_fields) is not None:
                raise ValueError(f"{key}: {no_such_key(key, cls.model_fields)}")
        return given

    @model_validator(mode="after")
    def _is_one_kind(self) -> "McpServer":
        if (self.command is None) is (self.url is None):
            raise ValueError("either command or url")
        return self

    @property
    def secrets(self) -> tuple[SecretUse, ...]:
        """The secrets that it is given, and where."""
        given = (("/env", self.env), ("/headers", self.headers))
        return tuple(
            SecretUse(part + pointer_part(key), value.name)
            for part, settings in given
            for key, value in settings.items()
            if isinstance(value, SecretName)
        )


class _File(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    mcp_servers: dict[ServerName, McpServer] = Field(alias="mcpServers")


def read_servers(path: Path) -> dict[str, McpServer]:
    """The servers of a file, by name.

    Raises:
        ServersFileInvalid: it can't be read, or a field is wrong.
    """
    try:
        text = path.read_text()
        found: Any = json.loads(text)
    except OSError as error:
        raise ServersFileInvalid(f"{path}: {error.strerror}") from None
    except json.JSONDecodeError as error:
        raise ServersFileInvalid(f"{placed(path, error.lineno)}: not readable as JSON: {error.msg}") from None
    except ValueError:
        raise ServersFileInvalid(f"{path}: not readable as JSON: it is no UTF-8") from None
    try:
        return dict(_File.model_validate(found).mcp_servers)
    except ValidationError as error:
        place, wording = first_fault(error)
        line = json_line(text, (*place, wording.partition(":")[0]))
        raise ServersFileInvalid(f"{placed(path, line)}: {'.'.join(map(str, place))}: {wording}") from None
