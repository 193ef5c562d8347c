"""The machine's shape, and the versions of what was measured; nothing that names a host."""

import json
import os
import re
import subprocess
import tempfile
import time
import tomllib
from collections.abc import Mapping
from statistics import median

from aetheris.cli.embedded.jars import KAFKA_VERSION
from aetheris.cli.embedded.valkey import server_binary
from tests.bench.environment import PEERS, postgres_folder

_FLUSHES = 100


def shape() -> str:
    """Cores, memory, and what a flush to disk costs."""
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores, {gib:.0f} GiB of memory; writing 4 KiB and fdatasync: {flush_ms():.2f} ms (median)"


def flush_ms() -> float:
    """What a write of 4 KiB and its fdatasync take, where the systems keep their data; the median."""
    with tempfile.NamedTemporaryFile(prefix="aetheris-bench-") as file:
        return median(_flush_ms(file.fileno()) for _ in range(_FLUSHES))


def versions() -> Mapping[str, str]:
    """Of Aetheris (its commit), its servers, and the peers as they are pinned."""
    return {
        "Aetheris": _said("git", "-C", str(PEERS), "rev-parse", "--short", "HEAD"),
        "Kafka": KAFKA_VERSION,
        "Valkey": _number(_said(str(server_binary()), "--version")),
        **_pinned(),
        **_postgres(),
    }


def _postgres() -> Mapping[str, str]:
    folder = postgres_folder()
    return {"Postgres": _number(_said(str(folder / "postgres"), "--version"))} if folder else {}


def _pinned() -> Mapping[str, str]:
    npm: Mapping[str, str] = json.loads((PEERS / "package.json").read_text())["dependencies"]
    python: list[str] = tomllib.loads((PEERS / "pyproject.toml").read_text())["project"]["dependencies"]
    pairs = (line.split("==") for line in python if not line.startswith("matplotlib"))
    return {**npm, **{pair[0]: pair[1] for pair in pairs}}


def _flush_ms(file: int) -> float:
    os.write(file, b"x" * 4096)
    started = time.perf_counter()
    os.fdatasync(file)
    return (time.perf_counter() - started) * 1e3


def _said(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def _number(text: str) -> str:
    found = re.search(r"\d+(\.\d+)+", text)
    return found.group() if found else text
