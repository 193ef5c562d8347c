"""The duplicate guard beyond a job: what a session or a tenant has done, for as long as the tool says."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from aetheris.ledger.core.contents import Contents, done, duplicate
from aetheris.ledger.core.decisions import Now
from aetheris.protocol.base.keys import content_key, external_key
from aetheris.protocol.fold.rules import apply
from aetheris.protocol.fold.state import JobState, birth
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import ContentRecord
from aetheris.protocol.messages.events import DuplicateOf
from tests.testkit.histories import TENANT, about, created, finished, graph, key_of, planned, started

WINDOW_S = 60.0
START = datetime(2030, 1, 1, tzinfo=UTC)


def now(after_s: float = 0.0) -> Now:
    return Now(after_s, START + timedelta(seconds=after_s))


def job(name: str, scope: str, session: str | None = "s1", tenant: str = TENANT, **node: Any) -> JobState:
    """A job whose only call is irreversible, just planned."""
    pin = {"irreversible": True, "duplicate_scope": scope, "duplicate_window_s": WINDOW_S}
    state = birth(created().model_copy(update={"job_id": name, "session": session, "tenant": tenant}), 0)
    apply(state, planned(graph({"id": "a"} | node, act=pin)).model_copy(update={"job_id": name}), 1)
    return state


def act(state: JobState, contents: Contents, after_s: float = 0.0) -> ContentRecord | None:
    """Its call succeeds; the line that says so."""
    allowed = about(ev.PolicyAllowed, "a", args_hash=started("a", "n").args_hash, tool_version="1", rule="r")
    begun = started("a", "n1")
    begun = begun.model_copy(update={"external_key": external_key(state.job_id, "a", 0)})
    ran = (allowed, begun, finished("a", "n1"))
    for offset, event in enumerate(ran, start=2):
        apply(state, event.model_copy(update={"job_id": state.job_id}), offset)
    return done(state, key_of("a"), contents, now(after_s))


def guard(state: JobState, contents: Contents, after_s: float = 0.0) -> DuplicateOf | None:
    entry = state.entry("a")
    assert entry is not None
    return duplicate(state, entry, content_key(state.created.tenant, "act", None), contents, now(after_s))


@pytest.mark.parametrize(
    ("scope", "other", "is_refused"),
    [
        ("job", {}, False),
        ("session", {}, True),
        ("session", {"session": "s2"}, False),
        ("session", {"session": None}, False),
        ("session", {"tenant": "other"}, False),
        ("session", {"occurrence": 2}, False),
        ("tenant", {"session": "s2"}, True),
        ("tenant", {"session": None}, True),
        ("tenant", {"tenant": "other"}, False),
    ],
)
def test_a_call_is_guarded_in_its_scope(scope: str, other: dict[str, Any], is_refused: bool) -> None:
    contents: Contents = {}
    act(job("one", scope), contents)
    found = guard(job("two", scope, **other), contents)
    assert (found.job_id if found is not None else None) == ("one" if is_refused else None)


def test_a_window_ends() -> None:
    contents: Contents = {}
    assert act(job("one", "tenant"), contents) is not None
    assert guard(job("two", "tenant"), contents, WINDOW_S - 1) is not None
    assert guard(job("two", "tenant"), contents, WINDOW_S) is None
    assert act(job("two", "tenant"), contents, WINDOW_S) is not None
    assert guard(job("three", "tenant"), contents, WINDOW_S + 1) == DuplicateOf.model_validate(
        {"job_id": "two", "node_id": "a", "execution_id": next(iter(contents.values())).execution_id}
    )


def test_a_job_is_no_duplicate_of_itself_and_what_failed_is_none() -> None:
    contents: Contents = {}
    first = job("one", "tenant")
    assert act(first, contents) is not None
    assert guard(first, contents) is None
    assert done(first, key_of("a"), contents, now()) is None

    failed = job("two", "tenant")
    apply(failed, about(ev.InvocationRejected, "a", reason="policy").model_copy(update={"job_id": "two"}), 2)
    assert done(failed, key_of("a"), {}, now()) is None
