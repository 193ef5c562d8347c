"""What a system is given to run with: flags, before the environment, before `aetheris.toml` (docs/configuration.md)."""

import hashlib
import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, get_args
from urllib.parse import urlsplit

import typer

from aetheris.archiver.settings import ArchiverSettings
from aetheris.cli.embedded.imports import files_of
from aetheris.cli.project_file import KEYS, Project, project, shown_path
from aetheris.console.settings import ConsoleSettings
from aetheris.gateway.settings import GatewaySettings
from aetheris.ledger.settings import LedgerSettings
from aetheris.notifier.settings import NotifierSettings
from aetheris.planner.settings import PlannerSettings
from aetheris.runtime.process.settings import RuntimeSettings
from aetheris.scheduler.settings import SchedulerSettings
from aetheris.sdk.loader import sources_of
from aetheris.tool_executor.settings import ExecutorSettings
from aetheris.verifier.prober.settings import ProberSettings
from aetheris.verifier.settings import VerifierSettings

SETTINGS: Mapping[str, type[RuntimeSettings]] = {
    "all": RuntimeSettings,
    "gateway": GatewaySettings,
    "planner": PlannerSettings,
    "ledger": LedgerSettings,
    "executor": ExecutorSettings,
    "prober": ProberSettings,
    "verifier": VerifierSettings,
    "console": ConsoleSettings,
    "notifier": NotifierSettings,
    "scheduler": SchedulerSettings,
    "archiver": ArchiverSettings,
}
"""Who has which settings; those that all services have stand under `all`."""

Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        envvar="AETHERIS_CONFIG",
        is_eager=True,
        help="The aetheris.toml to use, instead of the one of this folder or above.",
    ),
]
Tools = Annotated[str | None, typer.Option(envvar="AETHERIS_TOOLS", help="Modules of tools, a comma list.")]

_OWN = frozenset({"AETHERIS_DATA", "AETHERIS_WORKER_ID", "AETHERIS_HEALTH_PORT", "AETHERIS_GATEWAY_TOKEN"})
"""Of a system's own making, whatever the environment says."""
_WRITTEN = (
    *("AETHERIS_POLICY", "AETHERIS_SIGNERS", "AETHERIS_SECRETS", "AETHERIS_MCP", "AETHERIS_MODELS"),
    *("AETHERIS_NOTICES", "AETHERIS_STARTS"),
)
"""What names files that are read once, at a start."""
_TELLERS = "aetheris.notifier.notice_tools"


@dataclass(frozen=True)
class EffectiveConfig:
    """What holds in this environment, and where each comes from."""

    origins: Mapping[str, str]
    """Variable → the flag, the variable, or the file and its line."""
    executors: int

    def loaded(self) -> dict[str, str]:
        """What a system that starts now loads, by name: settings without passwords, and digests of the files they name.

        Raises: OSError, for a file that went away.
        """
        settings = {one: printable(os.environ[one]) for one in _variables() if os.environ.get(one)}
        return {"executors": str(self.executors), **settings, **dict(_contents())}

    def differences(self, loaded: Mapping[str, str]) -> list[str]:
        """A clause for each thing that a system, which has loaded these, would do otherwise if it were started now."""
        now = self.loaded()
        names = sorted({*now, *loaded})
        return [
            self._difference(one, loaded.get(one), now.get(one)) for one in names if loaded.get(one) != now.get(one)
        ]

    def origin(self, subject: str) -> str | None:
        """Where what is called so, such as `policy`, comes from; None where nothing says it."""
        return self.origins.get(f"AETHERIS_{subject.upper()}")

    def _difference(self, name: str, was: str | None, now: str | None) -> str:
        if name.startswith("file "):
            changed = "has changed" if was and now else "is new" if now else "is used no more"
            return f"{shown_path(Path(name.removeprefix('file ')))} {changed}"
        text = f" ({self.origins[name]})" if now is not None and name in self.origins else ""
        return f"{KEYS.get(name, name)} was {was or 'not set'}, and is {now or 'not set'} now{text}"


@contextmanager
def given(config: Path | None, tools: str | None = None, executors: int | None = None) -> Generator[EffectiveConfig]:
    """The environment and the folder that a system is to run with, until it is left.

    Raises:
        ProjectFileInvalid.
    """
    found = project(config)
    former = dict(os.environ)
    try:
        _absolute()
        origins = _applied(found, tools)
        count = executors if executors is not None else found.file.executors
        with chdir(found.folder) if found.folder is not None else nullcontext():
            yield EffectiveConfig(origins, count if count is not None else 1)
    finally:
        os.environ.clear()
        os.environ.update(former)


def printable(text: str) -> str:
    """A value without the password that a URL may carry."""
    password = urlsplit(text).password if "://" in text else None
    return text.replace(f":{password}@", ":…@") if password else text


def _absolute() -> None:
    """Paths that the environment has are seen from this folder, also where the system runs in another."""
    for variable, kind in _fields():
        if os.environ.get(variable) and (kind is Path or Path in get_args(kind)):
            os.environ[variable] = os.path.abspath(os.environ[variable])
    parquet = os.environ.get("AETHERIS_PARQUET", "")
    if parquet and "://" not in parquet:
        os.environ["AETHERIS_PARQUET"] = os.path.abspath(parquet)
    models = os.environ.get("AETHERIS_MODELS", "").split(",")
    entries = (os.path.abspath(one.strip()) if one.strip().endswith(".toml") else one.strip() for one in models)
    if os.environ.get("AETHERIS_MODELS"):
        os.environ["AETHERIS_MODELS"] = ",".join(entries)


def _applied(found: Project, tools: str | None) -> dict[str, str]:
    """Put into the environment what it doesn't say itself; an empty variable says nothing."""
    flag = tools is not None and tools != os.environ.get("AETHERIS_TOOLS")
    if tools is not None:
        os.environ["AETHERIS_TOOLS"] = tools
    body = {one: value for one, value in found.settings().items() if not flag or one != "AETHERIS_TOOLS"}
    origins = {one: found.place(KEYS[one]) for one in body}
    origins |= {one: one for one in _variables() if os.environ.get(one)}
    os.environ.update({one: value for one, value in body.items() if not os.environ.get(one)})
    if os.environ.get("AETHERIS_NOTICES"):
        _with_tellers(os.environ["AETHERIS_NOTICES"])
    return origins | ({"AETHERIS_TOOLS": "--tools"} if flag else {})


def _with_tellers(notices: str) -> None:
    """Executors tell what the notifier submits: they have its tools, and these the file."""
    os.environ["NOTICES_FILE"] = notices
    os.environ["AETHERIS_TOOLS"] = _joined(sources_of(os.environ.get("AETHERIS_TOOLS", "")), _TELLERS)
    os.environ["AETHERIS_TOOL_ENV"] = _joined(os.environ.get("AETHERIS_TOOL_ENV", "").split(","), "NOTICES_FILE")


def _joined(entries: Sequence[str], one: str) -> str:
    return ",".join(dict.fromkeys((*filter(None, entries), one)))


def _contents() -> Iterator[tuple[str, str]]:
    """(what, digest) of each file that is read at a start, and of what the tools are made of."""
    for variable in _WRITTEN:
        for entry in filter(None, os.environ.get(variable, "").split(",")):
            if variable != "AETHERIS_MODELS" or entry.endswith(".toml"):
                yield f"file {entry}", _digest(Path(entry))
    for module in filter(None, os.environ.get("AETHERIS_TOOLS", "").split(",")):
        for path in files_of(module.strip().partition(":")[0]):
            yield f"file {path}", _digest(path)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _variables() -> Sequence[str]:
    return [variable for variable, _ in _fields()]


def _fields() -> Iterator[tuple[str, object]]:
    """(variable, type) of each setting that a system takes from its environment."""
    declared = {name: one.annotation for kind in SETTINGS.values() for name, one in kind.model_fields.items()}
    found = ((f"AETHERIS_{name.upper()}", kind) for name, kind in declared.items())
    return ((variable, kind) for variable, kind in found if variable not in _OWN)
