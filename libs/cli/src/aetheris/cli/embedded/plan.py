"""What the supervisor is told (`plan.json`) and what it tells (`state.json`), both in the data folder."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

Ask = Literal["kafka", "redis", "http"]

RECORD_KEYS = Path("keys") / "records"
"""Where a data folder has the keys that sign records, and their root."""
TOKENS = Path("tokens")
"""Where it has the tokens that are spoken by, each under a name."""


@dataclass(frozen=True)
class ProcessSpec:
    """One process to keep running, and how to ask whether it is ready.

    `target` is host:port for kafka, a Redis url for redis, a port on 127.0.0.1 with /readyz for http.
    `env` comes on top of the supervisor's own environment. Services start once every server is ready.
    """

    name: str
    kind: Literal["server", "service"]
    argv: tuple[str, ...]
    ask: Ask
    target: str
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    stop_within_s: float = 10.0

    def is_ready(self) -> bool:
        """Ask once."""
        from aetheris.cli.embedded import probes  # noqa: PLC0415  Kafka's client: half a second for who asks nobody

        match self.ask:
            case "kafka":
                return probes.kafka_answers(self.target)
            case "redis":
                return probes.redis_answers(self.target)
            case "http":
                return probes.http_answers(int(self.target), "/readyz")


@dataclass(frozen=True)
class Plan:
    """All parts in the order of their start, and where clients find the system.

    An address is empty where the part is not started here; no secret is ever in it.
    """

    parts: tuple[ProcessSpec, ...]
    kafka: str
    redis: str
    gateway: str
    console: str = ""
    loaded: Mapping[str, str] | None = None
    """What it was given to run with, by name; None where its starter doesn't say."""

    def save(self, data: Path) -> None:
        """Write plan.json."""
        _replace(data / "plan.json", asdict(self))

    @staticmethod
    def load(data: Path) -> "Plan":
        """Read plan.json.

        Raises: OSError, ValueError.
        """
        raw: dict[str, Any] = json.loads((data / "plan.json").read_text())
        parts = tuple(ProcessSpec(argv=tuple(part.pop("argv")), **part) for part in raw.pop("parts"))
        return Plan(parts, **raw)


@dataclass(frozen=True)
class PartState:
    """One process: `pid` is None while it isn't running, `incarnation` counts its starts on this folder."""

    name: str
    pid: int | None = None
    incarnation: int = 0
    started_at: float | None = None  # seconds since the epoch
    last_exit: int | None = None  # exit code, negative for a signal


@dataclass(frozen=True)
class State:
    """What runs now; `pid` is the supervisor's, None when it has ended in good order."""

    pid: int | None
    kafka: str
    redis: str
    gateway: str
    parts: Mapping[str, PartState]
    console: str = ""

    def save(self, data: Path) -> None:
        """Write state.json; a reader sees the former or this one, never half of it."""
        _replace(data / "state.json", asdict(self))

    @staticmethod
    def load(data: Path) -> "State | None":
        """Read state.json; None if nothing ever ran here."""
        try:
            raw: dict[str, Any] = json.loads((data / "state.json").read_text())
        except FileNotFoundError:
            return None
        parts = {name: PartState(**part) for name, part in raw.pop("parts").items()}
        return State(**raw, parts=parts)


def log_path(data: Path, name: str) -> Path:
    """Where the output of a part, or of the supervisor, is kept."""
    return data / "logs" / f"{name}.log"


def _replace(path: Path, content: dict[str, Any]) -> None:
    staged = path.with_suffix(".new")
    staged.touch(mode=0o600)
    staged.write_text(json.dumps(content, indent=1))
    staged.replace(path)
