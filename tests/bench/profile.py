"""`make profile`: where the CPU of a step goes, by process and kind of work, in W1; into docs/performance.md."""

import json
import os
import signal
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
JOBS = 6000
SECONDS = 20
_SHOWN_US = 0.5
SAMPLER = Path(__file__).with_name("sampler")
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
REST = "event loop, kernel, collector"


def kind_of(stack: str) -> str:
    """What a sample was at: the innermost frame that one of the kinds claims (frames outermost first)."""
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
        found[kind_of(stack)] += int(count)
    total = sum(found.values())
    return {kind: count / total for kind, count in found.items()}


def functions(raw: str, cpu_us: float) -> Mapping[str, tuple[float, float]]:
    """What a step costs by function: by itself, and with what it calls, in µs."""
    own: Counter[str] = Counter()
    whole: Counter[str] = Counter()
    for line in raw.splitlines():
        stack, _, count = line.rpartition(" ")
        frames = stack.split(";")
        own[frames[-1]] += int(count)
        whole.update(dict.fromkeys(frames, int(count)))
    scale = cpu_us / (own.total() or 1)
    return {name: (own[name] * scale, spent * scale) for name, spent in whole.most_common()}


def profiled(folder: Path) -> tuple[Mapping[str, str], Mapping[str, float]]:
    """Samples by service, and the CPU of each process in µs a step, of one run of W1."""
    argv = (sys.executable, "-m", "aetheris.cli", "bench", "--jobs", str(JOBS), "--warm-up", "0", "--json")
    own = {"TMPDIR": str(folder), "CPU_SAMPLES": str(folder), "PYTHONPATH": str(SAMPLER)}
    with subprocess.Popen(argv, env=os.environ | own, stdout=subprocess.PIPE, text=True) as bench:
        state = State.load(_warm(folder))
        assert state is not None
        pids = {name: state.parts[name].pid or 0 for name in SERVICES}
        _tell(pids, signal.SIGUSR1)
        time.sleep(SECONDS)
        _tell(pids, signal.SIGUSR2)
        printed, _ = bench.communicate()
    return {name: (folder / str(pid)).read_text() for name, pid in pids.items()}, json.loads(printed)["cpu_us_per_step"]


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


def _tell(pids: Mapping[str, int], what: signal.Signals) -> None:
    for pid in pids.values():
        os.kill(pid, what)


def _dearest(samples: Mapping[str, str], cpu_us: Mapping[str, float]) -> str:
    lines = [
        f"{name:<11} {own:6.1f} {whole:6.1f}  {function}"
        for name in SERVICES
        for function, (own, whole) in functions(samples[name], cpu_us[name]).items()
        if whole >= _SHOWN_US
    ]
    return "\n".join(("µs of CPU a step: by itself, with what it calls", *lines))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="aetheris-profile-") as name:
        samples, us = profiled(Path(name))
    text = table(("µs of CPU a step", *SERVICES, "all"), rows({name: shares(raw) for name, raw in samples.items()}, us))
    text += f"\n\nBeside them Kafka {us['kafka']:.0f}, Valkey {us['valkey']:.0f}. "
    text += "A record alone, in a loop with warm caches, µs: "
    text += ", ".join(f"{work} {cost:.1f}" for work, cost in alone().items()) + "."
    sys.stdout.write(f"{_dearest(samples, us)}\n\n{text}\n")
    DOCUMENT.write_text(placed(DOCUMENT.read_text(), "profile", text))
