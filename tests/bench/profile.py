"""`make profile`: where the CPU of a step goes, by process and kind of work, in W1; into docs/performance.md."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from aetheris.cli.embedded.plan import State
from tests.bench.page import placed, table
from tests.bench.records import alone

DOCUMENT = Path(__file__).parents[2] / "docs" / "performance.md"
JOBS = 3000
SECONDS = 10
_RATE_HZ = 100
_FIRST_LINES = 8000
"""Steps until the services are warm and all jobs of the window are in flight."""
_READY_WITHIN_S = 180.0
SERVICES = ("planner-0", "ledger-0", "executor-0", "prober-0", "verifier-0", "gateway-0")

KINDS: Sequence[tuple[str, Sequence[str]]] = (
    ("Kafka's client", ("aiokafka/", "runtime/kafka/", "runtime/log/pump.py", "runtime/worker/loop.py")),
    (
        "Redis' client",
        ("runtime/redis/client.py", "runtime/redis/resp.py", "runtime/redis/effects.py", "runtime/redis/leases.py"),
    ),
    (
        "records: parse and write",
        ("pydantic/", "protocol/messages/envelope.py", "protocol/base/canonical.py", "protocol/base/ids.py"),
    ),
    ("the tool's call", ("sdk/", "bench/tools.py", "tool_executor/tool_calls.py")),
    ("fold and decide", ("protocol/", "/core/", "planner/", "ledger/", "tool_executor/", "handlers.py")),
    ("audit and proofs", ("proofs/", "verifier/")),
    ("HTTP and views", ("gateway/", "aiohttp/", "starlette/", "uvicorn/")),
)
_IDLE = "_worker (concurrent/futures/thread.py"
"""A thread that waits for work, which py-spy takes for one that works."""
REST = "event loop, kernel, collector"


def kind_of(stack: str) -> str:
    """What a sample was at: the innermost frame that one of the kinds claims (py-spy's raw format, outermost first)."""
    for frame in reversed([frame for frame in stack.split(";") if "__main__" not in frame]):
        for kind, paths in KINDS:
            if any(path in frame for path in paths):
                return kind
    return REST


def shares(raw: str) -> Mapping[str, float]:
    """The part of the samples that each kind has."""
    found: Counter[str] = Counter()
    for line in raw.splitlines():
        stack, _, count = line.rpartition(" ")
        if _IDLE not in stack.rpartition(";")[2]:
            found[kind_of(stack)] += int(count)
    total = sum(found.values())
    return {kind: count / total for kind, count in found.items()}


def profiled(folder: Path) -> tuple[Mapping[str, Mapping[str, float]], Mapping[str, float]]:
    """Shares by service and kind, and the CPU of each process in µs a step, of one run of W1."""
    argv = (sys.executable, "-m", "aetheris.cli", "bench", "--jobs", str(JOBS), "--warm-up", "0", "--json")
    with subprocess.Popen(argv, env=os.environ | {"TMPDIR": str(folder)}, stdout=subprocess.PIPE, text=True) as bench:
        data = _warm(folder)
        state = State.load(data)
        assert state is not None
        recorders = [_recorder(state.parts[name].pid or 0, folder / name) for name in SERVICES]
        for recorder in recorders:
            recorder.wait()
        printed, _ = bench.communicate()
    return {name: shares((folder / name).read_text()) for name in SERVICES}, json.loads(printed)["cpu_us_per_step"]


def rows(found: Mapping[str, Mapping[str, float]], cpu_us: Mapping[str, float]) -> list[Sequence[str]]:
    """A line for each kind of work, a column for each service, all in µs a step."""
    kinds = [*(kind for kind, _ in KINDS), REST]
    lines = [[kind, *(f"{found[name].get(kind, 0) * cpu_us[name]:.0f}" for name in SERVICES)] for kind in kinds]
    lines.append(["**together**", *(f"{cpu_us[name]:.0f}" for name in SERVICES)])
    return [[*line, f"{sum(map(float, line[1:])):.0f}"] for line in lines]


def _warm(folder: Path) -> Path:
    until = time.monotonic() + _READY_WITHIN_S
    while time.monotonic() < until:
        for notes in folder.glob("aetheris-bench-*/notes*"):
            if notes.read_bytes().count(b"\n") >= _FIRST_LINES:
                return notes.parent
        time.sleep(0.2)
    raise SystemExit(
        "→ profile: the bench did not get going; run `make bench PEERS=floor WORKLOADS=W1 RUNS=1` to see why"
    )


def _recorder(pid: int, out: Path) -> "subprocess.Popen[bytes]":
    program = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or "py-spy"
    argv = (program, "record", "-p", str(pid), "-d", str(SECONDS), "-r", str(_RATE_HZ), "-f", "raw", "-o", str(out))
    return subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="aetheris-profile-") as name:
        shares_found, us = profiled(Path(name))
    text = table(("µs of CPU a step", *SERVICES, "all"), rows(shares_found, us))
    text += f"\n\nBeside them Kafka {us['kafka']:.0f}, Valkey {us['valkey']:.0f}. "
    text += "A record alone, in a loop with warm caches, µs: "
    text += ", ".join(f"{work} {cost:.1f}" for work, cost in alone().items()) + "."
    sys.stdout.write(text + "\n")
    DOCUMENT.write_text(placed(DOCUMENT.read_text(), "profile", text))
