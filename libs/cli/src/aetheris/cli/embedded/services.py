"""The services of the embedded system, and the settings that each is given by its environment."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from aetheris.cli.embedded.bytecode import kept_bytecode
from aetheris.cli.embedded.forks import run_module
from aetheris.cli.embedded.plan import TOKENS, ProcessSpec
from aetheris.cli.embedded.ports import Ports
from aetheris.protocol.base.writers import Party
from aetheris.runtime.process.installation import named
from aetheris.verifier.apart import KEYS, OTHERS_KEYS, RECORD_KEYS, SUBJECT_KEYS, TOOLS

STOP_WITHIN_S = 10.0


@dataclass(frozen=True)
class Service:
    """One kind of service: its processes are called name-0, name-1, …; `http` ones are given a port.

    It is told nothing of the settings that are `withheld`, whatever the environment says. `signs`: as whom it signs
    its records.
    """

    name: str
    argv: tuple[str, ...]
    count: int = 1
    http: bool = False
    withheld: tuple[str, ...] = ()
    signs: Party | None = None
    asked_by: str | None = None
    """The setting that asks for it, where it does not run anyway."""
    submits: bool = False
    """By a token that is kept under its name."""


def _module(name: str) -> tuple[str, ...]:
    return run_module(f"aetheris.{name}")


SERVICES = (
    Service("planner", _module("planner"), withheld=SUBJECT_KEYS, signs=Party.PLANNER),
    Service("ledger", _module("ledger"), withheld=SUBJECT_KEYS, signs=Party.LEDGER),
    Service("executor", _module("tool_executor"), withheld=KEYS),
    Service("prober", _module("verifier.prober"), withheld=(*OTHERS_KEYS, *SUBJECT_KEYS), signs=Party.PROBER),
    Service("verifier", _module("verifier"), http=True, withheld=(*TOOLS, *SUBJECT_KEYS), signs=Party.AUDITOR),
    Service("gateway", _module("gateway"), http=True, signs=Party.GATEWAY),
)
_OF_HTTP = "AETHERIS_HTTP_KEY"
"""It speaks https where the others do, by the same certificate."""
CONSOLE = Service(
    "console",
    _module("console"),
    http=True,
    withheld=(
        *(key for key in (*KEYS, *SUBJECT_KEYS) if key != _OF_HTTP),
        *(*TOOLS, "AETHERIS_KAFKA", "AETHERIS_REDIS"),
    ),
)
"""Pages for people: `aetheris up` starts it beside the services; it is told of no broker, and of no key of theirs."""
_OF_READERS = (*(key for key in KEYS if key != _OF_HTTP), *SUBJECT_KEYS, *TOOLS, "AETHERIS_REDIS")
"""They read the log, and ask the gateway at most; none of this is for them."""
SUBMITTERS = (
    Service("notifier", _module("notifier"), withheld=_OF_READERS, asked_by="AETHERIS_NOTICES", submits=True),
    Service(
        *("scheduler", _module("scheduler")),
        http=True,
        withheld=_OF_READERS,
        asked_by="AETHERIS_STARTS",
        submits=True,
    ),
)
"""What submits jobs of its own: `aetheris up` starts each where a file says what for."""
ARCHIVER = Service("archiver", _module("archiver"), withheld=_OF_READERS, asked_by="AETHERIS_PARQUET")
"""What writes sealed jobs as Parquet: `aetheris up` starts it where something says where to."""


def outside(name: str) -> str | None:
    """A server that the user's environment names instead of the embedded one."""
    return os.environ.get(name) or None


def with_counts(counts: Mapping[str, int], services: Sequence[Service] = SERVICES) -> tuple[Service, ...]:
    """The services with other numbers of processes, such as {"executor": 2}."""
    return tuple(replace(service, count=counts.get(service.name, service.count)) for service in services)


def asked_for() -> tuple[Service, ...]:
    """The services that this environment asks for, by what each needs."""
    return tuple(
        one for one in (*SUBMITTERS, ARCHIVER) if one.asked_by is not None and outside(one.asked_by) is not None
    )


def service_parts(
    services: Sequence[Service], shared: Mapping[str, str], ports: Ports, keys: Path | None = None
) -> Iterator[ProcessSpec]:
    """A part for each process; `shared` are the settings that all of them get, `keys` is where theirs lie."""
    for service in services:
        own = _signing(service, keys) if keys is not None else {}
        for ordinal in range(service.count):
            yield _part(service, f"{service.name}-{ordinal}", {**shared, **own}, ports)


def _signing(service: Service, keys: Path) -> Mapping[str, str]:
    if service.signs is None:
        return {}
    files = (keys / f"{service.signs}.pem", keys / f"{service.signs}.cert.json")
    return dict(zip(RECORD_KEYS, map(str, files), strict=True))


def http_port(process: str, ports: Ports) -> int:
    """The port that a process with HTTP listens on."""
    return ports.get(f"{process}-http")


def _part(service: Service, process: str, shared: Mapping[str, str], ports: Ports) -> ProcessSpec:
    health = str(ports.get(f"{process}-health"))
    worker_id = named(process, Path(shared["AETHERIS_DATA"]))
    own = dict.fromkeys(service.withheld, "")
    own |= {"AETHERIS_WORKER_ID": worker_id, "AETHERIS_HEALTH_PORT": health, "PYTHONUNBUFFERED": "1"}
    if service.submits:
        own["AETHERIS_GATEWAY_TOKEN"] = str(Path(shared["AETHERIS_DATA"]) / TOKENS / service.name)
    if service.http:
        own["AETHERIS_HTTP_PORT"] = str(http_port(process, ports))
    return ProcessSpec(
        process, "service", service.argv, "http", health, {**shared, **own, **kept_bytecode()}, STOP_WITHIN_S
    )
