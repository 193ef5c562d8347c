"""What a probe or a verifier says, whatever it is, becomes an event that every service can read."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aetheris.protocol.messages.commands import Verification
from aetheris.protocol.messages.events import Answer
from aetheris.runtime.blobs.store import FolderBlobs
from aetheris.sdk import Drifted, Found, NotFound, StateChange, Unknown, tool
from aetheris.sdk.loader import Toolbox
from aetheris.verifier.probing import Prober
from tests.unit.protocol.test_recordable import Hostile, nested, read_back


def prober(folder: Path, says: Callable[[], Any]) -> Prober:
    @tool("act", effect_class="probeable", settles_within_s=1, probe=lambda external_key: says())  # noqa: ARG005
    def act() -> None:
        """Does nothing."""

    act.verifier(lambda change: says())  # noqa: ARG005
    return Prober(Toolbox({act.key: act}), FolderBlobs(folder), timeout_s=5, at_once=1)


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
    "said",
    [
        Found(nested(250), "x" * 950_000, (nested(300), "x" * 100_000)),
        Found("x" * 2_000_000, "\ud800", (Hostile(),), (StateChange("\ud800", "x" * 100_000, Hostile()),)),  # type: ignore[arg-type]
        Found(Hostile(), Hostile(), Hostile(), Hostile()),  # type: ignore[arg-type]
    ],
    ids=["deep", "large", "hostile"],
)
async def test_what_was_found_is_recorded(tmp_path: Path, said: Found) -> None:
    answer = await prober(tmp_path, lambda: said).ask(question(), None)
    assert answer.answer is Answer.FOUND
    assert read_back(answer) == answer
    assert len(answer.model_dump_json()) < 500_000


async def test_a_large_result_that_was_found_lies_in_the_blob_store(tmp_path: Path) -> None:
    answer = await prober(tmp_path, lambda: Found("x" * 2_000_000)).ask(question(), None)
    assert answer.result_ref is not None
    assert len(FolderBlobs(tmp_path).read(answer.result_ref.sha256)) == 2_000_002


@pytest.mark.parametrize("said", [NotFound((nested(300),)), Unknown("\ud800" * 5_000), Unknown(Hostile())])  # type: ignore[arg-type]
async def test_what_was_not_found_is_recorded(tmp_path: Path, said: Any) -> None:
    answer = await prober(tmp_path, lambda: said).ask(question(), None)
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
