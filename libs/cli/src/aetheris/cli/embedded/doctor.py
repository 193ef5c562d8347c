"""What stands in the way of `aetheris up`, and what to do about it. Changes nothing."""

import os
import platform
import pwd
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aetheris.cli.embedded import lifecycle
from aetheris.cli.embedded.errors import EmbeddedError
from aetheris.cli.embedded.jars import cache_folder, corrupt_jars, locked_jars, missing_jars
from aetheris.cli.embedded.java import find_java
from aetheris.cli.embedded.ports import Ports
from aetheris.cli.embedded.probes import brokers_answer, http_says, why_redis_is_unready
from aetheris.cli.embedded.refusals import reason_in
from aetheris.cli.embedded.services import outside
from aetheris.cli.embedded.valkey import server_binary
from aetheris.cli.project_faults import checked
from aetheris.runtime.base.refusal import REFUSED_STATUS, StartRefused
from aetheris.runtime.process.settings import load
from aetheris.tool_executor.settings import ExecutorSettings

_OLDEST_PYTHON = (3, 11)


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at; `remedy` says what to do, and is empty where nothing is needed."""

    subject: str
    ok: bool
    detail: str
    remedy: str = ""


def examine(data: Path) -> list[Finding]:
    """Look at everything that the embedded system of a data folder needs."""
    data = data.resolve()
    running = lifecycle.supervisor_pid(data) is not None
    return [_python(), *_kafka(), *_valkey(), _disk(data), *_given(), *_keys(), *_parts(data, running)]


def _python() -> Finding:
    ok = sys.version_info >= _OLDEST_PYTHON
    remedy = "" if ok else "Install Python 3.11 or newer and set the environment up anew."
    return Finding("python", ok, platform.python_version(), remedy)


def _given() -> Iterator[Finding]:
    """Settings, tools and files, as `aetheris check` looks at them."""
    found = checked()
    for subject, detail in found.loaded:
        yield Finding(subject, True, detail)
    for fault in found.faults:
        yield Finding(fault.subject, False, fault.detail, "Mend it; `aetheris check` looks again.")


def _keys() -> Iterator[Finding]:
    """Whether tools run as somebody who can read the keys by which records are signed."""
    try:
        tools = load(ExecutorSettings)
    except StartRefused:
        return  # said above
    if tools.tool_isolation == "process" and tools.tool_user is not None and _is_another(tools.tool_user):
        yield Finding("keys", True, f"tools run as {tools.tool_user}, who can't read them")
        return
    detail = "tools run as the user who can read them: signatures of records don't stop a hostile tool"
    remedy = 'As root: AETHERIS_TOOL_USER=NAME, with tool_isolation = "process".'
    yield Finding("keys", True, detail, remedy)


def _is_another(user: str) -> bool:
    try:
        return pwd.getpwnam(user).pw_uid not in (0, os.geteuid())
    except KeyError:
        return False


def _kafka() -> Iterator[Finding]:
    address = outside("AETHERIS_KAFKA")
    if address is None:
        yield _java()
        yield _jars()
        return
    ok = brokers_answer(address)
    remedy = "" if ok else "Start that broker, or unset AETHERIS_KAFKA to use the embedded one."
    yield Finding("kafka", ok, f"{address} {'answers' if ok else 'does not answer'}", remedy)


def _java() -> Finding:
    try:
        java = find_java()
    except EmbeddedError as error:
        return Finding("java", False, error.message, error.next_step)
    return Finding("java", True, f"{java.major} at {java.path}")


def _jars() -> Finding:
    cache = cache_folder()
    if corrupt := corrupt_jars(cache):
        names = ", ".join(jar.filename for jar in corrupt)
        return Finding("jars", False, f"not the locked bytes: {names}", f"Delete them from {cache}.")
    lacking = len(missing_jars(cache))
    detail = f"{len(locked_jars()) - lacking} of {len(locked_jars())} in {cache}"
    return Finding("jars", True, detail, "`aetheris up` fetches the others." if lacking else "")


def _valkey() -> Iterator[Finding]:
    url = outside("AETHERIS_REDIS")
    if url is None:
        yield _valkey_binary()
        return
    why = why_redis_is_unready(url)
    remedy = "" if why is None else "Mend that, or unset AETHERIS_REDIS to use the embedded one."
    yield Finding("redis", why is None, f"AETHERIS_REDIS {'answers' if why is None else why}", remedy)


def _valkey_binary() -> Finding:
    binary = server_binary()
    if binary is not None and os.access(binary, os.X_OK):
        return Finding("valkey", True, str(binary))
    here = f"{platform.system()} {platform.machine()}"
    return Finding(
        "valkey", False, f"no server for {here}", "Start a Valkey or Redis of your own and set AETHERIS_REDIS."
    )


def _disk(data: Path) -> Finding:
    folder = next(path for path in (data, *data.parents) if path.exists())
    free = shutil.disk_usage(folder).free
    ok = free >= lifecycle.FREE_BYTES_NEEDED and os.access(folder, os.W_OK)
    remedy = "" if ok else "Make room, or choose another data folder that you may write to."
    return Finding("disk", ok, f"{free // 2**20} MiB free for {data}", remedy)


def _parts(data: Path, running: bool) -> Iterator[Finding]:
    if running:
        yield from _running_parts(data)
        return
    yield Finding("system", True, "not running", "Start it with `aetheris up`.")
    for name, port in Ports(data).taken():
        remedy = f"End the process that listens there, or delete {data / 'ports.json'}."
        yield Finding("port", False, f"{port}, kept for {name}, is in use", remedy)


def _running_parts(data: Path) -> Iterator[Finding]:
    status = lifecycle.status(data)
    yield Finding("system", True, f"running, supervisor {status.pid}")
    for name, part in status.parts.items():
        body = http_says(part.health_port, "/readyz") if part.health_port is not None else {}
        reasons = "".join(f": {reason}" for reason in dict(body.get("unready") or {}).values())
        if part.state.pid is None and part.state.last_exit == REFUSED_STATUS:
            why = reason_in(part.log) or f"read {part.log}"
            yield Finding(name, False, f"refuses to run: {why}", "Mend it, then `aetheris down` and `aetheris up`.")
            continue
        detail = f"{'ready' if part.ready else 'not ready'}, incarnation {part.state.incarnation}{reasons}"
        yield Finding(name, part.ready, detail, "" if part.ready else f"Read {part.log}.")
        if away := dict(body.get("blobs_away") or {}):
            yield Finding(
                name, False, f"the store of blobs is away for {away['for_s']} s: {away['reason']}", "Mend it."
            )
        for one in list(body.get("quarantined") or ()):
            detail = f"{one['said']} (tenant {one['tenant']})"
            yield Finding(name, False, detail, "Mend what it calls; its calls wait, and go on by themselves.")
        yield from _refused(name, dict(body.get("refused") or {}))


def _refused(name: str, refused: Mapping[str, Any]) -> Iterator[Finding]:
    """Jobs that wait because the brokers will not have a record of theirs."""
    groups: list[dict[str, str]] = refused.get("groups") or []
    for one in groups:
        detail = f"job {one['job_id']} is stuck: Kafka refuses a record for {one['topic']} ({one['reason']})"
        yield Finding(name, False, detail, "Mend the topic's limits or the permission; it is offered again by itself.")
    more = int(refused.get("count") or 0) - len(groups)
    if more > 0:
        yield Finding(name, False, f"{more} more records are refused", "")
