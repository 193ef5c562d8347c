"""The machine's shape, and the versions of what was measured; nothing that names a host.

`python -m tests.bench.machine` keeps a core busy until its input ends, and says so first.
"""

import json
import os
import platform
import re
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import tomllib
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from statistics import median

from aetheris.cli.embedded.jars import KAFKA_VERSION
from aetheris.cli.embedded.valkey import server_binary
from tests.bench.environment import PEERS, postgres_folder

_FLUSHES = 100
_TURNS = 1_000_000
_LOOPS = 15
_BUSY_LOOP = (sys.executable, "-m", __name__)


def shape() -> str:
    """Cores, memory, what a flush to disk costs, what a busy neighbour costs, and the interpreter."""
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    alone_ms = loop_ms()
    with busy_neighbour():
        beside_ms = loop_ms(median)
    return (
        f"{os.cpu_count()} cores, {gib:.0f} GiB of memory; writing 4 KiB and fdatasync: {flush_ms():.2f} ms (median); "
        f"two busy processes each run at {100 * alone_ms / beside_ms:.0f} % of their speed alone. {interpreter()}: "
        f"a million turns of a loop take {alone_ms:.0f} ms"
    )


def loop_ms(of: Callable[[Iterable[float]], float] = min) -> float:
    """CPU that a million turns of a loop take, in this process: the least of many rounds, or what `of` says."""
    return of([_loop_ms() for _ in range(_LOOPS)])


@contextmanager
def busy_neighbour() -> Generator[None]:
    """Another process that never rests, as long as the block lasts; each of the two has a core of its own."""
    cores = os.sched_getaffinity(0)
    with subprocess.Popen(_BUSY_LOOP, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as neighbour:
        assert neighbour.stdin is not None
        assert neighbour.stdout is not None
        neighbour.stdout.readline()
        os.sched_setaffinity(neighbour.pid, {max(cores)})
        os.sched_setaffinity(0, {min(cores)})
        try:
            yield
        finally:
            os.sched_setaffinity(0, cores)
            neighbour.stdin.close()


def interpreter() -> str:
    """Python's version, and whether its configuration names what makes it faster (Debian's names nothing)."""
    configured = sysconfig.get_config_var("CONFIG_ARGS") or ""
    options = {"PGO": "--enable-optimizations", "LTO": "--with-lto"}
    said = ", ".join(name if option in configured else f"no {name}" for name, option in options.items())
    return f"Python {platform.python_version()} (its configuration names {said})"


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


def _loop_ms() -> float:
    started = time.process_time()
    total = 0
    for number in range(_TURNS):
        total += number
    return (time.process_time() - started) * 1e3


def _never_rest() -> None:
    threading.Thread(target=_end_with_input, daemon=True).start()
    sys.stdout.write("busy\n")
    sys.stdout.flush()
    while True:
        _loop_ms()


def _end_with_input() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


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


if __name__ == "__main__":
    _never_rest()
