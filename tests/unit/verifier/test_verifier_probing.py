"""What a probe or a verifier says, whatever it is, becomes an event that every service can read."""

# ruff: noqa: T201  prints are what is looked for

import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from aetheris.protocol.messages.commands import Verification
from aetheris.protocol.messages.event_values import Answer
from aetheris.runtime.blobs.store import FolderBlobs
from aetheris.sdk import Drifted, Found, NotFound, StateChange, Unknown, tool
from aetheris.sdk.loader import Toolbox
from aetheris.sdk.tool_output import ToolOutput
from aetheris.verifier.prober.hidden import known
from aetheris.verifier.prober.probes import Prober
from tests.unit.protocol.test_recordable import Hostile, nested, read_back

HIDDEN = "hunter2-hunter2"
OUTPUT = ToolOutput(lambda _level, _event, _fields: None)


class LinesOfLog:
    """Lines, as the prober writes them."""

    def __init__(self, secrets: Path | None = None, *, reported: bool = True) -> None:
        self.lines: list[dict[str, Any]] = []
        self.output = ToolOutput(self._say, partial(known, secrets), reported=reported)

    def _say(self, level: int, event: str, fields: Mapping[str, Any]) -> None:
        self.lines.append({"level": level, "event": event, **fields})


def prober(folder: Path, says: Callable[[], Any], output: ToolOutput = OUTPUT) -> Prober:
    @tool("act", effect_class="probeable", settles_within_s=1, probe=lambda external_key: says())  # noqa: ARG005
    def act() -> None:
        """Does nothing."""

    act.verifier(lambda change: says())  # noqa: ARG005
    return Prober(Toolbox({act.key: act}), FolderBlobs(folder), timeout_s=5, at_once=1, output=output)


def question(**fields: Any) -> Verification:
    return Verification(
        job_id="j",
        birth=0,
        node_id="a",
        idempotency_key="k",
        invocation_id="n",
        external_key="aetheris:j:a:0",
        tool_name="act",
        tool_version="1",
        ask="1",
        **fields,
    )


@pytest.mark.parametrize(
    "outcome",
    [
        Found(nested(250), "x" * 950_000, (nested(300), "x" * 100_000)),
        Found("x" * 2_000_000, "\ud800", (Hostile(),), (StateChange("\ud800", "x" * 100_000, Hostile()),)),  # type: ignore[arg-type]
        Found(Hostile(), Hostile(), Hostile(), Hostile()),  # type: ignore[arg-type]
    ],
    ids=["deep", "large", "hostile"],
)
async def test_what_was_found_is_recorded(tmp_path: Path, outcome: Found) -> None:
    answer = await prober(tmp_path, lambda: outcome).ask(question(), None)
    assert answer.answer is Answer.FOUND
    assert read_back(answer) == answer
    assert len(answer.model_dump_json()) < 500_000


async def test_a_large_result_that_was_found_lies_in_the_blob_store(tmp_path: Path) -> None:
    answer = await prober(tmp_path, lambda: Found("x" * 2_000_000)).ask(question(), None)
    assert answer.result_ref is not None
    assert len(FolderBlobs(tmp_path).read(answer.result_ref.sha256)) == 2_000_002


@pytest.mark.parametrize("reported", [NotFound((nested(300),)), Unknown("\ud800" * 5_000), Unknown(Hostile())])  # type: ignore[arg-type]
async def test_what_was_not_found_is_recorded(tmp_path: Path, reported: Any) -> None:
    answer = await prober(tmp_path, lambda: reported).ask(question(), None)
    assert read_back(answer) == answer


@pytest.mark.parametrize("diff", [{"a": nested(300)}, {"a": "x" * 2_000_000}, Hostile(), 7])
async def test_a_difference_is_recorded(tmp_path: Path, diff: Any) -> None:
    asked = question(
        what="confirm",
        mode="strict",
        resources=({"resource_type": "row", "resource_id": "1", "operation": "insert"},),
    )
    (answer,) = await prober(tmp_path, lambda: Drifted(diff)).confirm(asked, None)
    assert answer.event_type == "confirmation_failed"
    assert read_back(answer) == answer


def _speaks() -> Any:
    print("asks with", HIDDEN)
    logging.getLogger(__name__).warning("warned of %s", HIDDEN)
    raise ConnectionError(f"refused {HIDDEN}")


CONFIRM = {"what": "confirm", "mode": "strict"}
RESOURCE = {"resource_type": "row", "resource_id": "1", "operation": "insert"}


def _secrets(folder: Path) -> Path:
    (folder / "value").write_text(f"{HIDDEN}\n")
    path = folder / "secrets.toml"
    path.write_text('[[secrets]]\nname = "gone@1"\nfile = "gone"\n[[secrets]]\nname = "p@1"\nfile = "value"\n')
    return path


@pytest.mark.parametrize("role", ["probe", "verifier"])
async def test_what_it_says_is_in_the_log_with_job_and_step_and_without_secrets(tmp_path: Path, role: str) -> None:
    log = LinesOfLog(_secrets(tmp_path))
    asks = prober(tmp_path, _speaks, log.output)
    with log.output.installed():
        if role == "probe":
            answer = await asks.ask(question(), None)
            assert (answer.answer, answer.evidence) == (Answer.UNKNOWN, ("ConnectionError",))
        else:
            (verdict,) = await asks.confirm(question(**CONFIRM, resources=(RESOURCE,)), None)
            assert verdict.event_type == "confirmation_failed"
    assert {(line["tool"], line["job_id"], line["node_id"]) for line in log.lines} == {("act@1", "j", "a")}
    assert {line["event"]: line.get("line") for line in log.lines} == {
        f"{role} printed": "asks with [secret p@1]",
        f"{role} logged": "warned of [secret p@1]",
        f"{role} raised": None,
    }
    (traceback,) = [line["traceback"] for line in log.lines if "traceback" in line]
    assert traceback.rstrip().endswith("ConnectionError: refused [secret p@1]")
    assert "in _speaks" in traceback
    assert HIDDEN not in str(log.lines)


async def test_where_nothing_of_it_may_be_told_nothing_is(tmp_path: Path) -> None:
    log = LinesOfLog(reported=False)
    with log.output.installed():
        await prober(tmp_path, _speaks, log.output).ask(question(), None)
    assert log.lines == []


@pytest.mark.parametrize("text", ["", "secrets = 1", "[[secrets]]", "[[secrets]]\nname = 1\nenv = 2", "[[x", "\ud800"])
def test_a_file_of_secrets_that_says_nothing_hides_nothing(tmp_path: Path, text: str) -> None:
    path = tmp_path / "s.toml"
    path.write_bytes(text.encode(errors="surrogatepass"))
    assert known(path).text("as it is") == known(tmp_path / "none").text("as it is") == "as it is"
