"""What every demo needs around its story: a folder, an orderly way out, and patience."""

import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aetheris.cli.demo.kills import DemoError
from aetheris.cli.demo.system import System
from aetheris.sdk.client import Unreachable

END_WITHIN_S = 60.0
ASK_AGAIN_S = 0.1


@dataclass
class Folder:
    """Where a demo runs; it is kept if it `stays`."""

    path: Path
    stays: bool = False


@contextmanager
def folder_for(data: Path | None) -> Generator[Folder]:
    """The user's own, or a temporary one, which goes unless there is something to look at."""
    if data is not None:
        yield Folder(data.resolve())
        return
    made = Folder(Path(tempfile.mkdtemp(prefix="aetheris-demo-")).resolve())
    try:
        yield made
    finally:
        if not made.stays:
            shutil.rmtree(made.path, ignore_errors=True)


def verified_with_seal(system: System, job_id: str) -> Mapping[str, Any]:
    """Raises: DemoError: no seal in time."""
    deadline = time.monotonic() + END_WITHIN_S
    while time.monotonic() < deadline:
        with suppress(Unreachable):
            report = system.client.verify(job_id)
            if report["seal"]["present"]:
                return report
        time.sleep(ASK_AGAIN_S)
    raise DemoError("the verifier has not sealed the job")


def await_end(system: System, job_id: str) -> None:
    """Raises: DemoError: the job didn't complete, or not in time."""
    deadline = time.monotonic() + END_WITHIN_S
    while (job := system.job(job_id)) is None or job.status == "running":
        if time.monotonic() > deadline:
            raise DemoError(f"the job has not ended after {END_WITHIN_S:.0f} s")
        time.sleep(ASK_AGAIN_S)
    if job.status != "completed":
        raise DemoError(f"the job is {job.status}: {job.why or job.error}")


@contextmanager
def sigterm_as_ctrl_c() -> Generator[None]:
    """What was started is ended on the way out, whichever of the two it is."""
    former: Callable[..., Any] | int | None = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)
