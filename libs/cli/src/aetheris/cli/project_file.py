"""`aetheris.toml`: what a system is given, in one file of the user's folder (docs/configuration.md)."""

import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.functional_validators import BeforeValidator

from aetheris.protocol.base.faults import like, no_such_key, placed, toml_error_line, toml_key_line
from aetheris.runtime.base.refusal import StartRefused

NAME = "aetheris.toml"
LARGEST_BYTES = 256 * 1024
MOST_EXECUTORS = 16
KEYS = {
    f"AETHERIS_{key.upper()}": key
    for key in (
        "tools",
        "policy",
        "signers",
        "secrets",
        "mcp",
        "models",
        "shell_programs",
        "tool_isolation",
        "tool_env",
        "notices",
        "starts",
        "parquet",
    )
}
"""Environment variable → the key that says the same."""
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*(:[^\W\d]\w*)?")


class ProjectFileInvalid(StartRefused):
    """The file can't be used: mend what the message names, then start again."""

    code = "project_file_invalid"

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


def _words(example: str, fits: Callable[[str], str | None] = lambda _word: None) -> BeforeValidator:
    """A list of strings; `fits` says what is wrong with one."""

    def checked(value: object) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(one, str) for one in cast("list[object]", value)):
            raise ValueError(f'must be a list of strings, such as ["{example}"]')
        words = tuple(cast("list[str]", value))
        for wrong in filter(None, map(_item, words)):
            raise ValueError(wrong)
        for wrong in filter(None, map(fits, words)):
            raise ValueError(wrong)
        return words

    return BeforeValidator(checked)


def _item(word: str) -> str | None:
    if not word.strip() or "," in word or not word.isprintable():
        return "holds an entry that is empty, or has a comma or a control character in it"
    return None


def _module(word: str) -> str | None:
    if _MODULE.fullmatch(word):
        return None
    if word.endswith(".py"):
        meant = word.removesuffix(".py").strip("./").replace("/", ".")
        return f"{word} is a file, and a module is named as in an import; did you mean {meant}?"
    return f"{word} is not the name of a module"


def _variable(word: str) -> str | None:
    if word.startswith("AETHERIS_"):
        return f"{word} is a setting of ours, which may hold a credential, and is given to no tool"
    return None


def _isolation(value: object) -> str:
    if value not in ("none", "process"):
        raise ValueError('must be "none" or "process"')
    return str(value)


def _path(value: object) -> str:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise ValueError("must be the path of a file or folder, in quotes")
    return value


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST_EXECUTORS:
        raise ValueError(f"must be a number from 0 to {MOST_EXECUTORS}")
    return value


_Path = Annotated[str | None, BeforeValidator(_path)]


class ProjectFile(BaseModel):
    """The keys of the file; all of them may be left out. Paths are seen from the file's folder."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tools: Annotated[tuple[str, ...] | None, _words("shop.tools", _module)] = None
    policy: _Path = None
    signers: _Path = None
    secrets: _Path = None
    mcp: _Path = None
    models: Annotated[tuple[str, ...] | None, _words("openai-chat:gpt-5")] = None
    shell_programs: Annotated[tuple[str, ...] | None, _words("/usr/bin/git")] = None
    tool_isolation: Annotated[str | None, BeforeValidator(_isolation)] = None
    tool_env: Annotated[tuple[str, ...] | None, _words("SHOP_URL", _variable)] = None
    notices: _Path = None
    starts: _Path = None
    parquet: _Path = None
    data: _Path = None
    executors: Annotated[int | None, BeforeValidator(_count)] = None


@dataclass(frozen=True)
class Project:
    """A file as it was read, and where it is; without one, nothing."""

    path: Path | None = None
    file: ProjectFile = field(default_factory=ProjectFile)
    text: str = ""

    @property
    def folder(self) -> Path | None:
        """Where what it names is seen from."""
        return self.path.parent if self.path is not None else None

    @property
    def data(self) -> Path | None:
        """The data folder: the one that it names, else `.aetheris` beside it."""
        return self.path.parent / (self.file.data or ".aetheris") if self.path is not None else None

    def settings(self) -> Mapping[str, str]:
        """Environment variable → value, of what it says; paths are absolute."""
        values = {
            "tools": self.file.tools,
            "policy": self._seen(self.file.policy),
            "signers": self._seen(self.file.signers),
            "secrets": self._seen(self.file.secrets),
            "mcp": self._seen(self.file.mcp),
            "models": self._with_files(self.file.models),
            "notices": self._seen(self.file.notices),
            "starts": self._seen(self.file.starts),
            "parquet": self._stored(self.file.parquet),
            "tool_isolation": self.file.tool_isolation,
            "tool_env": self.file.tool_env,
            "shell_programs": self.file.shell_programs and tuple(map(self._seen, self.file.shell_programs)),
        }
        return {variable: _joined(values[key]) for variable, key in KEYS.items() if values[key] is not None}

    def place(self, key: str) -> str:
        """Where it says so: file and line, as seen from here."""
        return placed(shown_path(self.path or Path(NAME)), toml_key_line(self.text, key))

    def _seen(self, value: Any) -> Any:
        return value if value is None or self.folder is None else str(self.folder / value)

    def _stored(self, value: str | None) -> str | None:
        """A folder, unless it is a bucket."""
        return value if value is None or "://" in value else self._seen(value)

    def _with_files(self, entries: Sequence[str] | None) -> Sequence[str] | None:
        return entries and [self._seen(one) if one.endswith(".toml") else one for one in entries]


def project(named: Path | None = None) -> Project:
    """The file that is named (by `--config` or AETHERIS_CONFIG), else the one of this folder or the next above.

    Raises:
        ProjectFileInvalid: naming the file, the line and the key.
    """
    path = _named(named) if named is not None else _found(Path.cwd())
    return Project() if path is None else _read(path)


def shown_path(path: Path) -> Path:
    """A path as seen from this folder, where it lies below."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _named(named: Path) -> Path:
    path = Path(os.path.abspath(named))
    if not path.is_file():
        raise ProjectFileInvalid([f"{named}: there is no such file; --config or AETHERIS_CONFIG names it"])
    return path


def _found(here: Path) -> Path | None:
    """In a folder of somebody else's a file is not taken: what it names is run."""
    path = next((one for folder in (here, *here.parents) if os.path.lexists(one := folder / NAME)), None)
    if path is not None and path.lstat().st_uid not in (os.getuid(), 0):
        raise ProjectFileInvalid([f"{path} is another user's; if you trust it, name it: --config {path}"])
    return path


def _read(path: Path) -> Project:
    where = shown_path(path)
    text = _text(path, where)
    try:
        parsed = tomllib.loads(text)
    except RecursionError:
        raise ProjectFileInvalid([f"{where}: is nested too deeply"]) from None
    except ValueError as error:
        wording = re.sub(r" \(at .*\)$", "", str(error))
        raise ProjectFileInvalid([f"{placed(where, toml_error_line(error))}: is not TOML: {wording}"]) from None
    try:
        found = Project(path, ProjectFile.model_validate(parsed), text)
    except ValidationError as error:
        raise ProjectFileInvalid(list(_faults(error, where, text))) from None
    if missing := list(_missing(found)):
        raise ProjectFileInvalid(missing)
    return found


def _text(path: Path, where: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST_BYTES + 1)
    except OSError as error:
        raise ProjectFileInvalid([f"{where}: {error.strerror}"]) from None
    if len(raw) > LARGEST_BYTES:
        raise ProjectFileInvalid([f"{where}: is larger than {LARGEST_BYTES // 1024} KiB"])
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise ProjectFileInvalid([f"{where}: is not TOML: it is no UTF-8"]) from None


def _faults(error: ValidationError, where: Path, text: str) -> Iterator[str]:
    for one in error.errors(include_input=False, include_url=False):
        key = str(one["loc"][0])
        extra = one["type"] == "extra_forbidden"
        wording = no_such_key(key, ProjectFile.model_fields) if extra else one["msg"].removeprefix("Value error, ")
        yield f"{placed(where, toml_key_line(text, key))}: {key}: {wording}"


def _missing(found: Project) -> Iterator[str]:
    """What it names as a file, and is none."""
    file = found.file
    models = [("models", entry) for entry in file.models or () if entry.endswith(".toml")]
    for key, name in [
        ("policy", file.policy),
        ("signers", file.signers),
        ("secrets", file.secrets),
        ("mcp", file.mcp),
        *models,
    ]:
        path = (found.folder or Path()) / (name or "")
        if name is not None and not path.is_file():
            near = like(path.name, _names(path.parent))
            meant = f"; did you mean {Path(name).with_name(near)}?" if near is not None else ""
            yield f"{found.place(key)}: {key}: there is no file {name}{meant}"


def _names(folder: Path) -> Sequence[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return ()


def _joined(value: Any) -> str:
    return value if isinstance(value, str) else ",".join(value)
