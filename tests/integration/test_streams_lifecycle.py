"""A service's process ends gracefully on a signal, and by a crash that tells no payload."""

import json
import os
import signal
import subprocess
import sys

import pytest

GRACEFUL = """
import asyncio, sys
from aetheris.runtime.process.lifecycle import freeze_memory, run

async def main(stop):
    freeze_memory()
    print("up", flush=True)
    await stop.wait()
    print("drained", flush=True)

sys.exit(run(main, service="test"))
"""
CRASHING = """
import sys
from aetheris.runtime.process.lifecycle import run

async def main(stop):
    raise ValueError("card 4242")

sys.exit(run(main, service="test"))
"""
STUBBORN = """
import asyncio, sys
from aetheris.runtime.process.lifecycle import run

async def main(stop):
    print("up", flush=True)
    await asyncio.sleep(3600)

sys.exit(run(main, service="test", stop_deadline_s=0.2))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains(number: signal.Signals) -> None:
    assert _signalled(GRACEFUL, number) == (0, "drained\n", "")


def test_a_drain_that_takes_too_long_is_cut_off() -> None:
    code, _, log = _signalled(STUBBORN, signal.SIGTERM)
    assert code == 71
    assert json.loads(log)["event"] == "did not stop in time"


def test_a_crash_names_the_place_and_no_payload() -> None:
    done = subprocess.run([sys.executable, "-c", CRASHING], capture_output=True, text=True, timeout=30, check=False)
    entry = json.loads(done.stderr)
    assert (done.returncode, entry["event"], entry["errors"]) == (70, "crashed", ["ValueError"])
    assert entry["at"]
    assert "4242" not in done.stderr


def _signalled(code: str, number: signal.Signals) -> tuple[int, str, str]:
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "up\n"
        os.kill(child.pid, number)
        out, log = child.communicate(timeout=30)
        return child.returncode, out, log
