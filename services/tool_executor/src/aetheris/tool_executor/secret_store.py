"""Secrets of tools: which tool may be given which, and where; read at each call, never kept (docs/secrets.md)."""

import os
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from aetheris.protocol.base.faults import StrangeKey, first_fault, only_array, placed, toml_error_line, toml_line
from aetheris.protocol.base.references import SecretUse, is_secret_name, with_secrets
from aetheris.protocol.planning.invocation import Invocation
from aetheris.runtime.base.refusal import StartRefused
from aetheris.sdk.redaction import NOTHING, SHORTEST, Redactor

_USE = re.compile(r"[A-Za-z0-9_.:/-]{1,128}(@[A-Za-z0-9_.-]{1,64})?#/.+")


class SecretsFileInvalid(StartRefused):
    """The file that AETHERIS_SECRETS names can't be used: mend it, then start again."""

    code = "secrets_file_invalid"


class SecretRefused(Exception):
    """The call is given no such secret; nothing was called. The message names the secret and the tool."""


class SecretUnreadable(Exception):
    """The secret is declared, and its source has no value now; nothing was called. The message names the secret."""


class Secret(BaseModel):
    """One secret of the file: where its value is, and which places of which tools may have it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(description="name@version")
    env: str | None = Field(default=None, min_length=1, description="The environment variable that holds it")
    file: Path | None = Field(default=None, description="The file that holds it, seen from the file of secrets")
    uses: tuple[str, ...] = Field(default=(), description="tool#/argument or tool@version#/argument")

    @field_validator("name")
    @classmethod
    def _is_name(cls, name: str) -> str:
        if not is_secret_name(name):
            raise ValueError("must be name@version")
        return name

    @model_validator(mode="after")
    def _fits(self) -> "Secret":
        if (self.env is None) is (self.file is None):
            raise ValueError("either env or file")
        for use in self.uses:
            if not _USE.fullmatch(use):
                raise ValueError(f"uses: {use} is not tool#/argument")
        return self

    def may_be_used(self, tool: str, version: str, at: str) -> bool:
        """Whether that place of that tool's arguments (a JSON Pointer) may have it."""
        return f"{tool}#{at}" in self.uses or f"{tool}@{version}#{at}" in self.uses


class Secrets:
    """The declared secrets; what was given to a tool is kept out of this process's own output."""

    def __init__(self, declared: Iterable[Secret]) -> None:
        self._declared = {one.name: one for one in declared}
        self._given: dict[str, str] = {}
        self.redactor = NOTHING
        """Of all that was given so far."""

    def reveal(self, call: Invocation) -> dict[str, Any]:
        """The arguments of a call, with the secrets that its plan names: for the call, and for nothing else.

        Raises:
            SecretRefused, SecretUnreadable: as below.
        """
        return with_secrets(call.args, self.values_for(call))

    def values_for(self, call: Invocation) -> dict[str, str]:
        """The secrets that a call's plan names, by name@version.

        Raises:
            SecretRefused: one is not declared, not for this tool and place, or unfit.
            SecretUnreadable: one has no value now.
        """
        version = call.entry.tool_version or ""
        values = {use.name: self._value(call.entry.node.tool_name, version, use) for use in call.entry.node.secrets}
        self._remember(values)
        return values

    def of_settings(self, place: str, uses: Sequence[SecretUse]) -> dict[str, str]:
        """What the settings of something that tools are called through name; `place` stands in `uses` as a tool does.

        Raises:
            SecretRefused, SecretUnreadable: as above.
        """
        values = {use.name: self._value(place, "", use) for use in uses}
        self._remember(values)
        return values

    def _value(self, tool: str, version: str, use: SecretUse) -> str:
        declared = self._declared.get(use.name)
        if declared is None:
            raise SecretRefused(f"unknown secret {use.name}")
        if not declared.may_be_used(tool, version, use.at):
            raise SecretRefused(f"secret {use.name} is not for {tool}#{use.at}")
        value = _read(declared)
        if value is None:
            raise SecretUnreadable(f"secret {use.name} can't be read")
        if len(value) < SHORTEST:
            raise SecretRefused(
                f"secret {use.name} is too short to be kept out of results: {SHORTEST} characters at least"
            )
        return value

    def _remember(self, values: Mapping[str, str]) -> None:
        if any(self._given.get(name) != value for name, value in values.items()):
            self._given.update(values)
            self.redactor = Redactor(self._given)


class RedactedStream:
    """A text stream that what the process writes goes through, without the secrets that were given to its tools."""

    def __init__(self, stream: TextIO, redactor: Callable[[], Redactor]) -> None:
        self._stream = stream
        self._redactor = redactor

    def write(self, text: str) -> int:
        """Write the text without secrets; the length is that of the text as given."""
        self._stream.write(self._redactor().text(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """As `write`, for each."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def redact_output(secrets: Secrets) -> None:
    """From here on what this process prints goes without the secrets that were given to its tools."""
    sys.stdout = cast("TextIO", RedactedStream(sys.stdout, lambda: secrets.redactor))
    sys.stderr = cast("TextIO", RedactedStream(sys.stderr, lambda: secrets.redactor))


def secrets_of(path: Path | None) -> Secrets:
    """The secrets that a file declares; None: there are none.

    Raises:
        SecretsFileInvalid: naming the file and the field.
    """
    return Secrets(() if path is None else _declared(path))


def _declared(path: Path) -> Sequence[Secret]:
    try:
        text = path.read_text()
        found = tomllib.loads(text)
    except OSError as error:
        raise SecretsFileInvalid(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SecretsFileInvalid(f"{path}: not readable as TOML: it is no UTF-8") from None
    except tomllib.TOMLDecodeError as error:  # its words quote no value
        raise SecretsFileInvalid(f"{placed(path, toml_error_line(error))}: not readable as TOML") from None
    try:
        entries = only_array(text, found, "secrets")
    except StrangeKey as error:
        raise SecretsFileInvalid(f"{placed(path, error.line)}: {error}") from None
    secrets = [_secret(path, text, index, entry) for index, entry in enumerate(entries)]
    names = [one.name for one in secrets]
    for index, name in enumerate(names):
        if name in names[:index]:
            line = toml_line(text, "secrets", index, "name")
            raise SecretsFileInvalid(f"{placed(path, line)}: secret {name} stands twice")
    return secrets


def _secret(path: Path, text: str, index: int, entry: Any) -> Secret:
    try:
        secret = Secret.model_validate(entry)
    except ValidationError as error:
        loc, wording = first_fault(error, Secret.model_fields)
        place = ".".join(map(str, ("secrets", index, *loc)))
        line = toml_line(text, "secrets", index, loc[0] if loc else wording.partition(":")[0])
        raise SecretsFileInvalid(f"{placed(path, line)}: {place}: {wording}") from None
    return secret if secret.file is None else secret.model_copy(update={"file": path.parent / secret.file})


def _read(secret: Secret) -> str | None:
    """Its value without the line's end that a file may have; None where there is none."""
    if secret.env is not None:
        return os.environ.get(secret.env)
    try:
        return cast("Path", secret.file).read_text().removesuffix("\n").removesuffix("\r")
    except (OSError, UnicodeDecodeError):
        return None
