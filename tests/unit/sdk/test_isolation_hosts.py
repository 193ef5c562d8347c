"""What a module's process may do to its calls: helpers from its import, a changed file, no process left, floods."""

import json
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from aetheris.protocol.base.canonical import canonical
from aetheris.protocol.base.recordable import MAX_DEPTH
from aetheris.sdk import ProbeContext, StateChange
from aetheris.sdk.invoke import ask_probe, verify
from aetheris.sdk.isolation import call_process, frames
from aetheris.sdk.isolation.frames import BadFrame
from aetheris.sdk.outcomes import InDoubt, Retryable, Succeeded, Unknown
from aetheris.sdk.tool_output import LONGEST_TRACEBACK
from tests.testkit.module_host import HEAD, OLD_LINUX, running

PATIENCE_S = 30.0

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(sys.platform != "linux", reason="what is kept apart by Linux"),
]

HANGS = """
@tool("hangs", effect_class="opaque", irreversible=False, timeout_s=0.3)
def hangs() -> None:
    time.sleep(600)
"""

HELPER = f"{HEAD}HELPER = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']){HANGS}"
BRIEF_HELPER = f"{HEAD}subprocess.Popen(['true']); time.sleep(0.2){HANGS}"
THREAD = f"{HEAD}threading.Thread(target=time.sleep, args=(600,), daemon=True, name='sends').start(){HANGS}"

DIES = """
@tool("dies", effect_class="{effect_class}", irreversible={irreversible})
def dies(how: str = "") -> str:
    if how == "with its host":
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(600)
    (FOLDER / "ran").touch()
    return "ran"
"""

NO_FORK = """
fork = os.fork
def refuses():
    if (FOLDER / "full").exists():
        raise BlockingIOError(11, "no more processes")
    return fork()
os.fork = refuses
@tool("acts", effect_class="opaque", irreversible=False)
def acts() -> str:
    return "acted"
"""


@pytest.mark.parametrize(("text", "acts_no_more"), [(HELPER, False), (THREAD, False), (BRIEF_HELPER, True)])
async def test_what_a_module_has_started_at_import_may_act_for_its_calls(
    text: str, acts_no_more: bool, tmp_path: Path
) -> None:
    async with running(tmp_path, text) as rig:
        assert await rig.call("hangs") == InDoubt("TimeoutError", returned=acts_no_more)


async def test_a_module_that_has_changed_on_disk_is_not_called_under_what_was_registered(tmp_path: Path) -> None:
    opaque = HEAD + OLD_LINUX + DIES.format(effect_class="opaque", irreversible=False)
    async with running(tmp_path, opaque) as rig:
        module = tmp_path / "far_module.py"
        module.write_text(HEAD + DIES.format(effect_class="pure", irreversible=None))
        assert await rig.call("dies", how="with its host") == InDoubt("ToolProcessDied", returned=True)
        refused = await rig.call("dies")
        assert isinstance(refused, Retryable)
        assert "restart" in refused.reason
        assert not (tmp_path / "ran").exists()
        module.write_text(opaque)
        assert isinstance(await rig.call("dies"), Succeeded)


async def test_a_call_for_which_no_process_can_be_made_has_had_no_effect(tmp_path: Path) -> None:
    async with running(tmp_path, HEAD + NO_FORK) as rig:
        (tmp_path / "full").touch()
        refused = await rig.call("acts")
        assert isinstance(refused, Retryable)
        assert "no process could be made" in refused.reason
        os.remove(tmp_path / "full")
        assert isinstance(await rig.call("acts"), Succeeded)


SAYS = """
def connection():
    return next(int(one) for one in os.listdir("/proc/self/fd") if int(one) > 2 and is_socket(int(one)))

def is_socket(number):
    try:
        found = socket.socket(fileno=os.dup(number))
    except OSError:
        return False
    with found:
        return found.type == socket.SOCK_STREAM and os.get_blocking(number)

def say(data, times=1):
    with socket.socket(fileno=os.dup(connection())) as said:
        said.sendall((len(data).to_bytes(4, "big") + data) * times)

@tool("says", effect_class="opaque", irreversible=False, timeout_s=60)
def says(how: str) -> None:
    many = b"[]," * 5_000_000 + b"[]"
    line = json.dumps({"output": {"level": 20, "what": "printed", "fields": {"line": "x"}}}).encode()
    if how == "one line":
        say(b'{"output":[' + many + b"]}")
    if how == "one text":
        say(json.dumps({"output": {"level": 20, "what": "printed", "fields": {"line": "x" * 256 * 1024}}}).encode())
    if how == "no JSON":
        say(b'{"output":')
    if how == "no object":
        say(b'["output"]')
    if how == "deep":
        body = b'{"result":' + b"[" * 100 + b"]" * 100 + b',"external_id":null,"changes":[],"partial":false}'
        say(b'{"said":{"kind":"Succeeded","body":' + body + b'},"traceback":""}')
    if how == "last word":
        say(b'{"said":[' + many + b"]}")
    if how == "short lines":
        frame = b'{"output":[' + b"[]," * 60_000 + b"[]]}"
        for _ in range(10):
            say(frame)
    if how == "without end":
        while True:
            say(line, 1000)
    time.sleep(600)
"""


@pytest.mark.parametrize(
    "how", ["one line", "one text", "no JSON", "no object", "deep", "last word", "short lines", "without end"]
)
async def test_what_a_process_says_holds_nobody_up_and_it_is_killed_and_named(how: str, tmp_path: Path) -> None:
    async with running(tmp_path, f"{HEAD}import socket{SAYS}") as rig:
        with parsed() as sizes:
            came = await rig.call("says", how=how)
        assert came == InDoubt("ToolProcessUnreadable", returned=True)
        assert max(sizes, default=0) <= frames.LARGEST_OUTPUT, "nothing large is parsed before it is measured"
        assert sum(sizes) <= call_process.MOST_OUTPUT + call_process.LAST_LINE
        raised = next(line for line in rig.lines if line["event"] == "tool raised")
        assert (raised["tool"], raised["error"]) == ("says@1", "ToolProcessUnreadable")
        assert "refused" in raised["traceback"]


@contextmanager
def parsed() -> Generator[list[int]]:
    """The bytes of each frame that is parsed here."""
    sizes, real = list[int](), json.loads

    def loads(data: Any) -> Any:
        sizes.append(len(data))
        return real(data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json, "loads", loads)
        yield sizes


@pytest.mark.parametrize(
    ("text", "more"),
    [(b'["a,b","c\\",,"]', 2), (b'{"a\\\\":[],"b":{}}', 6), (b"[1,2,3]", 3), (b'["' + b"," * 50 + b'"]', 1)],
)
def test_values_are_counted_outside_of_texts(text: bytes, more: int) -> None:
    assert not frames.has_more(text, more)
    assert frames.has_more(text, more - 1)


RESULTS = """
@tool("gives", effect_class="opaque", irreversible=False, timeout_s=60)
def gives(what: str) -> object:
    texts = {"texts": "\\u20ac" * 5_500_000, "huge": "\\u20ac" * 5_600_000, "control": "\\x01" * 2_000_000}
    return texts.get(what, [0] * 600_000)
"""


@pytest.mark.parametrize(
    ("what", "size"),
    [("texts", 3 * 5_500_000 + 2), ("huge", 3 * 5_600_000 + 2), ("many", 1_200_001), ("control", 6 * 2_000_000 + 2)],
)
async def test_a_large_result_is_recorded_or_named_by_its_size_but_never_lost(
    what: str, size: int, tmp_path: Path
) -> None:
    async with running(tmp_path, HEAD + RESULTS) as rig:
        came = await rig.call("gives", what=what)
    assert isinstance(came, Succeeded)
    if what in ("many", "huge"):
        assert came.result["$left_out"]["bytes"] == size
    else:
        assert len(canonical(came.result)) == size


RAISES = """
@tool("shouts", effect_class="pure")
def shouts() -> None:
    raise ValueError("x" * 1_000_000)

@tool("divides", effect_class="pure")
def divides() -> None:
    1 / 0

@tool("asked", effect_class="probeable", settles_within_s=0)
def asked() -> None: ...

@asked.probe
def probe(external_key: str) -> Found | NotFound:
    1 / 0

@asked.verifier
def verifier(change: object) -> object:
    1 / 0
"""


async def test_what_is_raised_at_length_is_bounded_in_the_log(tmp_path: Path) -> None:
    async with running(tmp_path, HEAD + RAISES) as rig:
        assert await rig.call("shouts") == Retryable("ValueError")
    (line,) = rig.lines
    assert 1000 < len(line["traceback"]) <= LONGEST_TRACEBACK


async def test_what_is_raised_undeclared_is_in_the_log_as_if_it_were_raised_here(tmp_path: Path) -> None:
    async with running(tmp_path, HEAD + RAISES) as rig:
        assert await rig.call("divides") == Retryable("ZeroDivisionError")
        tool, ctx = rig.tools.get("asked", "1"), ProbeContext("k", "k", "job-1", "n")
        for role in ("probe", "verifier"):
            with rig.output.of(tool, ctx, role):
                if role == "probe":
                    said: object = await ask_probe(tool, ctx, PATIENCE_S, rig.output.raised)
                else:
                    said = await verify(tool, StateChange("a", "b", "c"), ctx, PATIENCE_S, rig.output.raised)
            assert said == Unknown("ZeroDivisionError")
    assert [line["event"] for line in rig.lines] == ["tool raised", "probe raised", "verifier raised"]
    for line in rig.lines:
        assert line["error"] == "ZeroDivisionError"
        assert "1 / 0" in line["traceback"]


@pytest.mark.parametrize("piece", [1, 3, 1_000])
def test_frames_are_heard_one_by_one_however_they_come_and_nothing_behind_a_bad_one(piece: int) -> None:
    heard: list[dict[str, Any]] = []
    ends: list[BadFrame | None] = []
    good = frames.packed({"a": 1}) + frames.packed({"b": "x" * 20})

    def hear(data: bytes) -> frames.FrameProtocol:
        heard.clear()
        ends.clear()
        listener = frames.FrameProtocol(heard.append, ends.append)
        for at in range(0, len(data), piece):
            listener.data_received(data[at : at + piece])
        return listener

    listener = hear(good + frames.packed({"c": 2})[:-1])
    assert heard == [{"a": 1}, {"b": "x" * 20}]
    listener.connection_lost(None)
    assert ends == [None]
    for bad in (b"\x00\x00\x00\x02[]", b"\xff\xff\xff\xff", frames.packed({"deep": nested(MAX_DEPTH + 9)})):
        listener = hear(good + bad + good)
        listener.connection_lost(None)
        assert heard == [{"a": 1}, {"b": "x" * 20}]
        assert [type(one) for one in ends] == [BadFrame]


def nested(levels: int) -> Any:
    return [] if not levels else [nested(levels - 1)]
