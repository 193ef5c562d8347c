"""What every demo needs around its story: a folder, an orderly way out, and patience."""

import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import httpx
from rich.markup import escape

from aetheris.cli.embedded.errors import EmbeddedError
from aetheris.rigs.demo.kills import DemoError
from aetheris.rigs.demo.progress import Say
from aetheris.rigs.demo.system import DemoSystem
from aetheris.sdk.client import ApiError, Job, Unreachable

END_WITHIN_S = 60.0
ASK_AGAIN_S = 0.1
GOING_ON = frozenset({"submitted", "running"})

_EXPECTED = (EmbeddedError, DemoError, ApiError, TimeoutError, RuntimeError, httpx.HTTPError)


class Shown(Protocol):
    """What a demo has shown."""

    @property
    def as_promised(self) -> bool:
        """Whether it is what the demo says that it shows."""
        ...


Outcome = TypeVar("Outcome", bound=Shown)


def report(
    data: Path | None,
    play: Callable[[Path, Say], Outcome],
    show: Callable[[Outcome, Say], None],
    *,
    keep: bool,
    expected: tuple[type[Exception], ...] = (),
) -> int:
    """Play a story and show what came of it; 0 if all is as promised, else 1.

    Args:
        data: folder of the log, the servers' data and their logs; None: a temporary one, removed afterwards.
        keep: Aetheris is left running, to look at the job.
        expected: what may go wrong in this story, beside what may in each.
    """
    say = Say()
    with sigterm_as_ctrl_c(), folder_for(data) as folder:
        try:
            outcome = play(folder.path, say)
        except (*_EXPECTED, *expected) as error:
            folder.stays = True
            logs = f"{folder.path / 'logs'}, {folder.path / 'demo'}"
            say.plain(f"\n[red]The demo stopped[/red]: {escape(str(error))}\nLogs: {logs}")
            return 1
        folder.stays = keep or not outcome.as_promised
        show(outcome, say)
        say.plain("\n[green]As promised.[/green]" if outcome.as_promised else "\n[red]Not as promised.[/red]")
        if keep:
            where = f"--data {folder.path}"
            say.plain(f"Aetheris is still up: `aetheris jobs {where}`; end it with `aetheris down {where}`")
        return 0 if outcome.as_promised else 1


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


def verified_with_seal(system: DemoSystem, job_id: str) -> Mapping[str, Any]:
    """Raises: DemoError: no seal in time."""
    deadline = time.monotonic() + END_WITHIN_S
    while time.monotonic() < deadline:
        with suppress(Unreachable):
            report = system.client.verify(job_id)
            if report["seal"]["present"]:
                return report
        time.sleep(ASK_AGAIN_S)
    raise DemoError("the verifier has not sealed the job")


def settled_by(system: DemoSystem, job_id: str, node_id: str) -> str:
    """By what way the one success of a step came into the log."""
    ways = [
        event.data["via"]
        for event in system.client.events(job_id)
        if event.type == "tool_invocation_finished" and event.data["node_id"] == node_id
    ]
    return ", ".join(ways)


def await_status(system: DemoSystem, job_id: str, status: str) -> Job:
    """The job, once it has come to rest as told. Raises: DemoError: it rests otherwise, or not in time."""
    deadline = time.monotonic() + END_WITHIN_S
    while (job := system.job(job_id)) is None or job.status in GOING_ON:
        if time.monotonic() > deadline:
            raise DemoError(f"the job is not {status} after {END_WITHIN_S:.0f} s")
        time.sleep(ASK_AGAIN_S)
    if job.status != status:
        raise DemoError(f"the job is {job.status}: {job.why or job.error}")
    return job


@contextmanager
def sigterm_as_ctrl_c() -> Generator[None]:
    """What was started is ended on the way out, whichever of the two it is."""
    former: Callable[..., Any] | int | None = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)
