"""Results that workflows hand on unread, in memory: killed everywhere, undone, edited, replayed; and the page."""

import re
from typing import Any

import pytest

from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.job_log import LoggedEvent
from aetheris.protocol.messages import events as ev
from aetheris.sdk import ToolContext, tool
from aetheris.sdk.outcomes import Failed
from aetheris.sdk.workflows import ToolFailed, WorkflowContext, own, undo, workflow
from aetheris.sdk.workflows.body_replay import replay_body
from aetheris.testing import NODE, MemorySystem, run_workflow
from tests.testkit.system import REPOSITORY

pytestmark = pytest.mark.timeout(300)
SMALL, LARGE = 10, 200_000
GIVEN: list[tuple[str, int, str]] = []
"""What took effect: the tool, how much text it was given, and whose."""


@tool(effect_class="pure")
async def scan(size: int) -> dict[str, Any]:
    return {"text": "x" * size, "of": [f"who scans {size}"]}


@tool(effect_class="idempotent")
async def file(ctx: ToolContext, text: str, of: str) -> dict[str, Any]:
    if ctx.external_key not in SEEN:
        SEEN.add(ctx.external_key)
        GIVEN.append(("file", len(text), of))
    return {"filed": text}


@tool(effect_class="idempotent")
async def unfile(text: str, was: dict[str, Any]) -> None:
    GIVEN.append(("unfile", len(text), was["filed"][:1]))


@tool(effect_class="idempotent")
async def refuses(text: str) -> None:
    raise Failed(f"no {len(text)}")


SEEN: set[str] = set()
TOOLS = [scan, file, unfile, refuses]


@workflow(tools=TOOLS)
async def hands_on(ctx: WorkflowContext, size: int, fails: bool = False) -> int:
    found = await ctx.reference(scan, size=size)
    undone = undo(unfile, text=found.at("/text"), was=own())
    filed = await ctx.using(id="file", undo=undone).reference(file, text=found.at("/text"), of=found.at("/of/0"))
    again = await ctx.call(file, text=filed.at("/filed"), of="again")
    try:
        await ctx.call(refuses, text=filed.at("/filed"))
    except ToolFailed:
        if fails:
            raise
    return len(again["filed"])


@pytest.fixture(autouse=True)
def nothing_given() -> None:
    GIVEN.clear()
    SEEN.clear()


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_whatever_dies_each_is_given_just_what_was_recorded(size: int) -> None:
    job = run_workflow(hands_on, {"size": size}, crash="everywhere")
    assert (job.status, job.result(NODE)) == ("completed", size)
    assert {("file", size, f"who scans {size}"), ("file", size, "again")} == set(GIVEN)
    planned = [one for one in job.log if isinstance(one, ev.CallPlanned)]
    assert max(len(str(one.entry)) for one in planned) < 1_000


def test_what_undoes_it_is_given_what_it_was() -> None:
    job = run_workflow(hands_on, {"size": LARGE, "fails": True})
    assert job.status == "failed"
    assert GIVEN[-1] == ("unfile", LARGE, "x")


def test_a_person_sees_the_call_as_it_is_sent_and_edits_it() -> None:
    @tool(effect_class="idempotent")
    async def send(text: str) -> str:
        GIVEN.append(("send", len(text), text[:3]))
        return "sent"

    @workflow(tools=[scan, send])
    async def sends(ctx: WorkflowContext, size: int) -> str:
        found = await ctx.reference(scan, size=size)
        return await ctx.call(send, text=found.at("/text"))

    plan = {"nodes": [{"id": NODE, "kind": "workflow", "tool": "sends", "args": {"size": SMALL}}]}
    rest = '[[rules]]\nname = "rest"\ntools = ["*"]\neffect = "allow"'
    ask = f'[[rules]]\nname = "ask"\ntools = ["send"]\neffect = "approval"\n{rest}'
    for edited, sent in ((None, ("send", SMALL, "xxx")), ({"text": "mine"}, ("send", 4, "min"))):
        GIVEN.clear()
        system = MemorySystem(sends, scan, send, policy=ask)
        job = system.run(plan)
        (request,) = [one for one in job.log if isinstance(one, ev.ApprovalRequested)]
        assert request.form["context"]["arguments"] == {"text": "x" * SMALL}
        job = system.approve(job) if edited is None else system.edit(job, data=edited)
        job = system.approve(job, by="second") if job.status != "completed" else job
        assert (job.status, GIVEN) == ("completed", [sent])


def test_code_is_replayed_over_what_it_handed_on() -> None:
    job = run_workflow(hands_on, {"size": SMALL})
    logged = [
        LoggedEvent(place, Record(Topic.JOBS_EVENTS, 0, place, 0, None, (), b""), event)
        for place, event in enumerate(job.log)
    ]
    same = replay_body(hands_on, logged, {})
    assert (same.diverges, same.new, same.unasked, same.changed, same.end) == (False, (), (), (), "returns")


def test_the_page_s_example_runs_and_survives_every_death() -> None:
    text = (REPOSITORY / "docs" / "workflows.md").read_text()
    (code,) = re.findall(r"```python\n# references\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {"__name__": "shop"}
    exec(code, names)  # noqa: S102  our own page
    job = run_workflow(names["keep"], {"order": "o-1"}, crash="everywhere")
    assert (job.status, job.result(NODE)) == ("completed", 1_000_000)
