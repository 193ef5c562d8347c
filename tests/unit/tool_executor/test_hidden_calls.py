"""Calls with hidden values: opened where the pinned schema says so, and what comes of them hidden again."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import pytest

from aetheris.protocol.base.canonical import canonical
from aetheris.protocol.base.hidden_values import HiddenPlace, HiddenValue
from aetheris.protocol.fold.state import PlanEntry
from aetheris.protocol.messages.commands import RegistryEntry
from aetheris.protocol.messages.event_values import Outcome
from aetheris.protocol.plan.graph import Node
from aetheris.protocol.planning.invocation import Invocation
from aetheris.protocol.planning.schemas import pin_of
from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.blobs.store import BlobsUnreachable, FolderBlobs
from aetheris.runtime.blobs.traffic import BlobTraffic
from aetheris.runtime.subjects.hidden_store import HiddenStore, sealed
from aetheris.runtime.subjects.kms import FileKms, make_file_key
from aetheris.runtime.subjects.subject_keys import SubjectKeys
from aetheris.sdk import Personal, Result, StateChange, ToolContext, tool
from aetheris.sdk.loader import Toolbox
from aetheris.sdk.outcomes import InDoubt, Permanent, Retryable, Succeeded
from aetheris.sdk.outcomes import Outcome as Said
from aetheris.sdk.tool_output import ToolOutput
from aetheris.sdk.tools import AnyTool
from aetheris.tool_executor import hidden_calls
from aetheris.tool_executor.hidden_calls import HiddenCalls, OpenedCall
from aetheris.tool_executor.secret_store import Secrets
from aetheris.tool_executor.tool_calls import Calls

FORM = HiddenValue("0" * 64, "1" * 64, "2" * 32)
TOLD: list[str] = []
LOGGED: list[str] = []


@tool("mail", effect_class="idempotent")
async def mail(who: str, to: Annotated[str, Personal("/who")], note: Any = "") -> Result:
    """Keeps what it is given, and says it."""
    TOLD.append(to)
    print("mailing", to, who, note)  # noqa: T201
    return Result({"to": to}, f"mail {to}", (StateChange("mailbox", to, "create"),))


@tool("plain", effect_class="idempotent")
async def plain(to: Any) -> str:
    """Takes anything."""
    return str(to)


OUTPUT = ToolOutput(lambda _level, _event, fields: LOGGED.append(str(fields)))
CALLS = Calls(Toolbox({one.key: one for one in (mail, plain)}), SystemClock(), Secrets(()), output=OUTPUT)


def call(called: AnyTool, answered: Sequence[str] = (), **args: Any) -> Invocation:
    """A call with its arguments as they are, or referring to what a person has filled in."""
    pin = pin_of(RegistryEntry.model_validate(called.registry_entry()))
    planned = {name: {"$ref": "f#/x"} if f"/{name}" in answered else value for name, value in args.items()}
    entry = PlanEntry(0, Node(id="a", tool=called.name, args=planned), pin)
    places = tuple(HiddenPlace(at, FORM) for at in answered)
    return Invocation("a", entry, args, "h", "k", "c", (), places)


def context() -> ToolContext:
    return ToolContext(external_key="x", attempt=0, idempotency_key="k", job_id="job-1", node_id="a", deadline=1e9)


@pytest.fixture
def hiding(tmp_path: Path) -> HiddenStore:
    make_file_key(tmp_path / "key")
    keys = SubjectKeys(tmp_path / "subjects", FileKms(tmp_path / "key"), SystemClock().now)
    return HiddenStore(keys, FolderBlobs(tmp_path / "blobs"))


@pytest.fixture
def hidden(hiding: HiddenStore, tmp_path: Path) -> HiddenCalls:
    return HiddenCalls(hiding, BlobTraffic(FolderBlobs(tmp_path / "blobs"), SystemClock()))


async def of(hiding: HiddenStore, value: Any, *subjects: str, job: str = "job-1") -> HiddenValue:
    keys = await hiding.keys.enrolled("acme", subjects)
    found = sealed({one.k: one.key for one in keys.values()}, "acme", job, value)
    await hiding.keep([found])
    return found.value


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (lambda: call(mail, who="ann", to=FORM.json()), None),
        (lambda: call(mail, who="ann", to="ann@x"), "mail#/to is personal, and is not hidden"),
        (lambda: call(mail, who=FORM.json(), to=FORM.json()), "a hidden value is not for mail#/who"),
        (lambda: call(mail, who="ann", to=FORM.json(), note=[FORM.json()]), "a hidden value is not for mail#/note/0"),
        (lambda: call(plain, to=FORM.json()), "a hidden value is not for plain#/to"),
        (lambda: call(plain, to="ann@x"), None),
        (lambda: call(mail, who="ann", to=FORM.json(), answered=("/to",)), None),
        (lambda: call(plain, to=FORM.json(), answered=("/to",)), "a hidden value is not for plain#/to"),
    ],
)
def test_hidden_values_stand_where_the_schema_says_so_and_nothing_else_does(
    made: Callable[[], Invocation], says: str | None
) -> None:
    refused = CALLS.refuses(made())
    assert (refused.error if refused is not None else None) == says
    assert refused is None or refused.outcome is Outcome.PERMANENT


async def test_a_call_is_given_the_value_and_its_record_the_form(hiding: HiddenStore, hidden: HiddenCalls) -> None:
    value = await of(hiding, "ann@example.org", "ann")
    made = call(mail, who="ann", to=value.json())
    opened = await hidden.opened(made, "acme", "job-1")
    assert isinstance(opened, OpenedCall)
    with OUTPUT.installed():
        outcome = await CALLS.make(made, context(), opened.values)
    assert TOLD.pop() == "ann@example.org"
    assert made.args["to"] == value.json()
    assert LOGGED == []
    said = await hidden.hidden(outcome, opened, "acme", "job-1")
    assert isinstance(said, Succeeded)
    assert (said.external_id, [one.resource_id for one in said.changes]) == ("mail [hidden]", ["[hidden]"])
    assert said.canonical == canonical(said.result)
    form = HiddenValue(**said.result["$hidden"])
    assert form.k == value.k
    assert (await hiding.opened("acme", "job-1", form))[0] == {"to": "ann@example.org"}


async def test_a_result_is_hidden_under_all_subjects(hiding: HiddenStore, hidden: HiddenCalls) -> None:
    values = [await of(hiding, name, name) for name in ("ann", "bob")]
    made = call(plain, to=[one.json() for one in values])
    opened = await hidden.opened(made, "acme", "job-1")
    assert isinstance(opened, OpenedCall)
    said = await hidden.hidden(Succeeded(1), opened, "acme", "job-1")
    assert isinstance(said, Succeeded)
    assert set(said.result["$hidden"]["k"].split(".")) == {one.k for one in values}


@pytest.mark.parametrize(
    ("outcome", "says"),
    [
        (Retryable("ann@example.org is away"), Retryable("NotExecuted")),
        (Permanent("no ann@example.org"), Permanent("Failed")),
        (InDoubt("Gone_ann@example.org", returned=True), InDoubt("Gone_[hidden]", returned=True)),
    ],
)
async def test_of_a_failure_the_kind_is_told(hidden: HiddenCalls, outcome: Said, says: Said) -> None:
    opened = OpenedCall({"/to": "ann@example.org"}, {"0" * 32: bytes(32)})
    assert await hidden.hidden(outcome, opened, "acme", "job-1") == says


async def test_a_short_value_is_taken_out_where_it_is_all_of_a_name(hidden: HiddenCalls) -> None:
    opened = OpenedCall({"/to": {"name": "Ann", "n": 17}}, {"0" * 32: bytes(32)})
    outcome = Succeeded(None, "Ann", (StateChange("person", "17", "create"), StateChange("x", "An Ann 170", "y")))
    said = await hidden.hidden(outcome, opened, "acme", "job-1")
    assert isinstance(said, Succeeded)
    assert (said.external_id, said.changes[0].resource_id) == ("[hidden]", "[hidden]")
    assert said.changes[1] == outcome.changes[1]


async def test_another_jobs_value_or_an_erased_one_is_not_opened(hiding: HiddenStore, hidden: HiddenCalls) -> None:
    other = await of(hiding, "ann@example.org", "ann", job="job-2")
    assert await hidden.opened(call(mail, to=other.json()), "acme", "job-1") == Permanent("hidden_corrupt")
    own = await of(hiding, "ann@example.org", "ann")
    assert isinstance(await hidden.opened(call(mail, to=own.json()), "acme", "job-1"), OpenedCall)
    await hiding.keys.erase("acme", "ann")
    assert await hidden.opened(call(mail, to=own.json()), "acme", "job-1") == Permanent("erased")
    unknown = replace(own, k="f" * 32)
    assert await hidden.opened(call(mail, to=unknown.json()), "acme", "job-1") == Retryable(
        "NotExecuted: subject_key_missing"
    )


async def test_without_a_store_of_keys_the_call_is_not_made(tmp_path: Path) -> None:
    none = HiddenCalls(None, BlobTraffic(FolderBlobs(tmp_path), SystemClock()))
    said = await none.opened(call(mail, to=FORM.json()), "acme", "job-1")
    assert isinstance(said, Retryable)
    assert said.reason.startswith("NotExecuted: hidden values can't be opened here")


async def test_a_result_that_cant_be_kept_leaves_the_call_in_doubt(
    hidden: HiddenCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_args: object) -> None:
        raise BlobsUnreachable("away")

    monkeypatch.setattr(hidden_calls, "PATIENCE_S", 0.01)
    monkeypatch.setattr(FolderBlobs, "put_at", away)
    opened = OpenedCall({"/to": "ann"}, {"0" * 32: bytes(32)})
    assert await hidden.hidden(Succeeded(1), opened, "acme", "job-1") == InDoubt("BlobsUnreachable")
