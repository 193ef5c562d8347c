"""What the services' cores write of honest jobs breaks no rule of what a call is, and a lie in it does."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from aetheris.proofs import RawRecord
from aetheris.sdk import Result, tool
from aetheris.testing import MemorySystem, crash_before
from aetheris.testing.memory_system import JobUnderTest
from tests.testkit import standalone

LONG = "漢" * 10_000
"""As long as an answer may be: three of them are more than a form shows."""


@tool(effect_class="opaque", irreversible=True)
async def post(text: str, note: str = "", more: str = "", amount: float = 0.0) -> Result:
    """Send a letter."""
    return Result({"letters": [text, note, more], "amount": amount}, external_id="l-1")


def raw(job: JobUnderTest) -> list[RawRecord]:
    """Its records, as they lie in its log."""
    records = (entry.record for entry in job._entries)
    return [RawRecord(record.offset, record.key, record.headers, record.value) for record in records]


def broken(records: Sequence[RawRecord]) -> list[str]:
    """The rules that both verifiers find broken."""
    return [one.rule for one in standalone.verified(records).violations]


def asked() -> tuple[MemorySystem, JobUnderTest]:
    """A letter that waits for a yes."""
    system = MemorySystem(post)
    return system, system.run({"nodes": [{"id": "n", "kind": "tool", "tool": "post", "args": {"text": "hello"}}]})


def test_an_edit_may_make_a_call_too_large_to_be_shown() -> None:
    system, job = asked()
    system.edit(job, data={"text": LONG, "note": LONG, "more": LONG}, by="editor")
    assert broken(raw(job)) == []
    system.approve(job)
    assert (job.status, broken(raw(job))) == ("completed", [])


def test_so_may_the_last_of_several_and_it_is_asked_about_again_when_it_is_tried_again() -> None:
    system = MemorySystem(post)
    plan = {"nodes": [{"id": "n", "kind": "tool", "tool": "post", "args": {"text": "hello"}}]}
    job = system.run(plan, faults=[crash_before(post)])
    for data in ({"text": LONG}, {"note": LONG, "amount": 2.0}, {"amount": 1e20, "more": LONG}):
        system.edit(job, data=data, by="editor")
    system.approve(job)
    system.resolve(job, "n", "retry")
    assert (job.asked, broken(raw(job))) == (("n",), [])
    system.approve(job)
    assert (job.status, job.events.count("approval_requested"), broken(raw(job))) == ("completed", 5, [])


def shows_the_call_before_it(records: list[dict[str, Any]]) -> None:
    first, last = requests(records)
    last["form"]["context"]["arguments"] = first["form"]["context"]["arguments"]


def shows_another_beginning(records: list[dict[str, Any]]) -> None:
    requests(records)[-1]["form"]["context"]["arguments"]["text"]["begins"] = "something harmless"


def leaves_an_argument_out(records: list[dict[str, Any]]) -> None:
    del requests(records)[-1]["form"]["context"]["arguments"]["note"]


def names_another_hash(records: list[dict[str, Any]]) -> None:
    first, last = requests(records)
    last["args_hash"] = first["args_hash"]


def requests(bodies: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [body for body in bodies if "form" in body]


@pytest.mark.parametrize(
    "lie", [shows_the_call_before_it, shows_another_beginning, leaves_an_argument_out, names_another_hash]
)
def test_what_is_shown_of_a_large_edited_call_is_held_against_the_edit(
    lie: Callable[[list[dict[str, Any]]], None],
) -> None:
    system, job = asked()
    system.edit(job, data={"text": LONG, "note": LONG, "more": LONG}, by="editor")
    records = raw(job)
    bodies = [json.loads(record.value) for record in records]
    lie(bodies)
    lied = [replace(one, value=json.dumps(body).encode()) for one, body in zip(records, bodies, strict=True)]
    assert broken(lied) == ["form_differs"]


def test_an_edit_behind_a_request_makes_nothing_of_it() -> None:
    system, job = asked()
    system.edit(job, data={"text": LONG, "note": LONG, "more": LONG}, by="editor")
    records = raw(job)
    records.append(records.pop(job.events.index("approval_decided")))
    records = [replace(record, offset=at) for at, record in enumerate(records)]
    assert "form_differs" in broken(records)
