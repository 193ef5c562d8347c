"""A running system and the external server that its tools act on: what most tests of the whole system stand on."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.testkit.collector import Collector, running_collector
from tests.testkit.external_server import ExternalServer, running_outside
from tests.testkit.system import System, running_system

TOOLS = "tests.testkit.external_tools"


@dataclass(frozen=True)
class Rig:
    """What counts the effects of `system` is `outside`. A test with more parts extends it."""

    system: System
    external: ExternalServer


@contextmanager
def running_rig(folder: Path, env: Mapping[str, str] | None = None, **counts: int) -> Generator[Rig]:
    """Both up, and down again.

    Args:
        folder: theirs: data/ and outside/ within.
        env: what services see on top, such as AETHERIS_POLICY; AETHERIS_TOOLS where it isn't `TOOLS`.
        counts: how many of a service, where it isn't one.
    """
    with running_outside(folder / "outside") as external:
        given = {"AETHERIS_TOOLS": TOOLS, **(env or {}), **external.env}
        with running_system(folder / "data", given, **counts) as system:
            yield Rig(system, external)


def poke(node: str, tag: Any, *after: str, tool: str = "poke_probeable", **args: Any) -> dict[str, Any]:
    """A step that has its effect outside, under the tag; `hold` and `delay_s` are the server's."""
    return {"id": node, "tool": tool, "args": {"tag": tag, **args}, "depends_on": list(after)}


def wait(node: str, key: str, *after: str, **more: Any) -> dict[str, Any]:
    """A step that waits for a signal."""
    return {"id": node, "kind": "wait", "wait": {"key": key, **more}, "depends_on": list(after)}


@dataclass(frozen=True)
class TracedRig(Rig):
    """What its services export arrives at `collector`."""

    collector: Collector


@contextmanager
def running_traced_rig(folder: Path, env: Mapping[str, str] | None = None, **counts: int) -> Generator[TracedRig]:
    """As `running_rig`, and a collector."""
    with running_collector() as collector, running_rig(folder, {**collector.env, **(env or {})}, **counts) as rig:
        yield TracedRig(rig.system, rig.external, collector)
