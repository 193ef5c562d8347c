"""A system with tools that are given persons' values, and everything that it keeps and says, searched."""

import hashlib
import json
import os
import secrets
import subprocess
import sys
import zipfile
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import duckdb
import redis
from aiokafka.record.memory_records import MemoryRecords

from tests.testkit.canary import CONTROL, forms_of, kept_and_told, with_decoded
from tests.testkit.collector import Collector, running_collector
from tests.testkit.notice_receivers import WebReceiver, web_receiver
from tests.testkit.system import System, running_system


def fresh() -> str:
    return f'ann.{secrets.token_urlsafe(18)}+"ä@example.org'


@dataclass(frozen=True)
class HiddenRig:
    """A system with tools that are given persons' values."""

    system: System
    folder: Path
    collector: Collector
    web: WebReceiver
    """Who is told what waits."""
    said: list[str] = field(default_factory=list)
    """All values and subjects that were ever said."""

    def given(self, value: str) -> bool:
        return hashlib.sha256(value.encode()).hexdigest() in (self.folder / "seen").read_text().split()

    def post(self, path: str, body: Any, key: str | None = None) -> tuple[int, dict[str, Any]]:
        headers = self.system.approver if path.startswith(("/subjects", "/ecs")) else {}
        if key is not None:
            headers = {**headers, "Idempotency-Key": key}
        answer = self.system.api.post(path, json=body, headers=headers)
        return answer.status_code, answer.json()

    def finished(self, job: str) -> list[dict[str, Any]]:
        return self.system.data_of(job, "tool_invocation_finished")


@contextmanager
def running_hidden_rig(folder: Path, settings: Mapping[str, str] | None = None) -> Generator[HiddenRig]:
    """A system of its own in this folder, with these settings beside what it needs."""
    (folder / "seen").touch()
    with running_collector() as collector, web_receiver() as web:
        env = {
            "AETHERIS_TOOLS": "tests.testkit.personal_tools,aetheris.notifier.notice_tools",
            "PERSONAL_SEEN": str(folder / "seen"),
            "NOTICES_FILE": str(folder / "notices.toml"),
            **collector.env,
            **(settings or {}),
        }
        with running_system(folder / "data", env) as system:
            yield HiddenRig(system, folder, collector, web)


def call(node: str, tool: str, subject: str, value: Any, **more: Any) -> dict[str, Any]:
    return {
        "id": node,
        "tool": tool,
        "args": {"customer": subject, "email": value, **more},
        "retry": {"max_attempts": 1},
    }


def segments(data: Path) -> Iterator[tuple[str, bytes]]:
    """The records of Kafka's segments, their batches decompressed, and what they hold in base64."""
    for path in data.rglob("*.log"):
        raw = path.read_bytes()
        if "kafka" not in path.parts or len(raw) < 61 or raw[16:17] != b"\x02":
            continue
        batches: Any = MemoryRecords(raw)
        while (batch := batches.next_batch()) is not None:
            for one in batch:
                texts = [one.key or b"", one.value or b"", *(value or b"" for _, value in one.headers)]
                yield f"segment {path.parent.name}", b"\0".join(texts)


def unpacked(folder: Path) -> Iterator[tuple[str, bytes]]:
    """What archived bundles and Parquet below a folder say, which their own bytes hide: (kind of file, bytes)."""
    for path in folder.rglob("*.zip"):
        with zipfile.ZipFile(path) as members:
            yield from (("archive", with_decoded(members.read(name))) for name in members.namelist())
    for path in folder.rglob("*.parquet"):
        with duckdb.connect() as connection:
            rows: list[Any] = connection.execute("SELECT * FROM read_parquet(?)", [str(path)]).fetchall()
        yield f"parquet {path.name}", json.dumps(rows, default=str, ensure_ascii=False).encode()


def in_redis(system: System) -> Iterator[tuple[str, bytes]]:
    """Whatever is in Redis now: ("redis KEY", its parts)."""
    with redis.Redis.from_url(system.state().redis) as client:
        server: Any = client
        read: dict[bytes, Callable[[bytes], Any]] = {
            b"string": server.get,
            b"hash": server.hgetall,
            b"list": lambda key: server.lrange(key, 0, -1),
            b"set": server.smembers,
            b"zset": lambda key: server.zrange(key, 0, -1),
            b"stream": server.xrange,
        }
        for key in server.scan_iter(count=1000):
            yield f"redis {key.decode()}", b"\0".join((key, *_parts_of(read[server.type(key)](key))))


def _parts_of(value: Any) -> Iterator[bytes]:
    if isinstance(value, bytes):
        yield value
    elif isinstance(value, dict):
        for pair in cast("dict[Any, Any]", value).items():
            yield from _parts_of(pair)
    elif isinstance(value, list | tuple | set):
        for one in cast("Iterable[Any]", value):
            yield from _parts_of(one)


def leaks(rig: HiddenRig, *jobs: str, beside: Iterable[Path] = (), seen: Collection[str] = ()) -> set[str]:
    """The places in which a value is, also in files below `beside`.

    Checks that each kind of place was looked at, and those that are named in `seen`, too.
    """
    beside = list(beside)
    found: set[str] = set()
    controls: set[str] = set()
    sought = [form for value in rig.said for form in forms_of(value)]
    files = [path for folder in beside for path in folder.rglob("*") if path.is_file()]
    places = [
        *kept_and_told(rig.system, rig.collector, rig.folder, *jobs),
        *segments(rig.system.data),
        *in_redis(rig.system),
        *(one for folder in (rig.system.data, *beside) for one in unpacked(folder)),
        *((str(path), path.read_bytes()) for path in files),
    ]
    for place, content in places:
        if any(form in content for form in sought):
            found.add(place)
        if CONTROL in content:
            controls.add(place.split("/")[0].split(" ")[0] or "job")
    assert {"kafka", "segment", "page", "bundle", "job", *seen} <= controls, controls
    return found


def opened(rig: HiddenRig, job: str) -> tuple[Any, int, int]:
    """(the value of node a's argument, as who may read payloads is shown it; how many were opened; were erased)."""
    answer = rig.system.api.get(f"/jobs/{job}/openings").json()
    assert answer["hidden"] == len(answer["openings"]) + answer["erased"]
    found = [one["value"] for one in answer["openings"] if one["at"] == "/plan/nodes/1/args/email"]
    return (found or [None])[0], len(answer["openings"]), answer["erased"]


def judged(rig: HiddenRig, job: str) -> None:
    """A bundle with its openings beside, checked; and with one that says something else."""
    bundle, openings = rig.folder / f"{job}-judged.zip", rig.folder / f"{job}.openings.json"
    aetheris(rig, "export", job, "--out", str(bundle))
    aetheris(rig, "openings", job, "--out", str(openings))
    assert openings.stat().st_mode & 0o077 == 0
    said = json.loads(openings.read_text())
    report = json.loads(aetheris(rig, "verify", str(bundle), "--openings", str(openings), "--json"))
    assert report["opened_values"] == report["hidden_values"] == len(said["openings"]) > 0
    said["openings"][0]["value"] = "somebody else"
    openings.write_text(json.dumps(said))
    report = json.loads(aetheris(rig, "verify", str(bundle), "--openings", str(openings), "--json", status=1))
    assert [one["rule"] for one in report["violations"]] == ["opening_differs"]
    openings.unlink()


def aetheris(rig: HiddenRig, *args: str, status: int = 0) -> str:
    argv = [sys.executable, "-m", "aetheris.cli", *args, "--data", str(rig.system.data)]
    ran = subprocess.run(argv, capture_output=True, text=True, env={**os.environ}, check=False)
    assert ran.returncode == status, ran.stderr
    return ran.stdout
