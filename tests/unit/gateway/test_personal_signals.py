"""Signals with a person's values: hidden before they are written, and refused where that can't be."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from aetheris.gateway.commands import JobCommands, Reply
from aetheris.gateway.core.decisions import JobSnapshot
from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import BadRequestProblem, ConflictProblem, ForbiddenProblem, Problem
from aetheris.gateway.hidden_submissions import HiddenSubmissions
from aetheris.protocol.api import Commanded
from aetheris.protocol.base.hidden_values import HiddenValue, hidden_places
from aetheris.protocol.base.principals import PrincipalKind, Role
from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import Signal
from aetheris.protocol.plan.graph import InvalidPlan, TaskGraph, Wait, check_graph
from aetheris.protocol.planning.personal_fields import is_hidden
from aetheris.runtime.subjects.hidden_store import HiddenStore
from tests.testkit import histories as h
from tests.unit.gateway.test_opened_values import NoDeadlines
from tests.unit.runtime.test_subject_keys import hiding_in

OPERATOR = Principal("boss", h.TENANT, PrincipalKind.PERSON, frozenset({Role.OPERATE}))
IBAN = {"/iban": "/customer"}
PAID = {"customer": "c-17", "iban": "DE02-canary", "amount": 7}
VALUE = HiddenValue("0" * 64, "1" * 64, "2" * 32).json()


class OneWaitingJob:
    """Its reader, and who takes what is written of it: as the ledger does, at once."""

    def __init__(self, personal: dict[str, Any]) -> None:
        self.plan = h.planned(h.graph({"id": "w", "kind": "wait", "tool": None, "wait": {"key": "p"} | personal}))
        self.told: list[ev.Event] = []
        self.sent: list[Signal] = []
        self.clock = self

    @property
    def state(self) -> JobState:
        return h.fold(self.plan, *self.told)

    @asynccontextmanager
    async def listening(self, _job_id: str) -> AsyncGenerator[str]:
        yield "news"

    async def planned(self, _caller: Principal, job_id: str, _news: object) -> JobSnapshot:
        return JobSnapshot(job_id, self.state, 2)

    async def send(self, command: Signal, _trace: object) -> str:
        self.sent.append(command)
        name, payload = command.correlation_key, command.payload
        said = ev.SignalReceived(job_id=h.JOB, caused_by="c", correlation_key=name, payload=payload, command_id="c")
        self.told.append(said)
        return "c"

    async def hear(self, *_about: object) -> None:
        return None


async def said(
    job: OneWaitingJob, hiding: HiddenStore | None, payload: Any, caller: Principal = OPERATOR, key: str = "p"
) -> Reply[Commanded]:
    commands = JobCommands(cast("Any", job), cast("Any", job), NoDeadlines(), HiddenSubmissions(hiding))
    return await commands.signal(caller, h.JOB, json.dumps({"correlation_key": key, "payload": payload}).encode())


def keys(folder: Path) -> int:
    return len(list((folder / "subjects" / "keys").glob("*")))


@pytest.mark.parametrize(
    ("personal", "payload", "at"),
    [
        (IBAN, PAID, ["/iban"]),
        ({"/iban": {"name": "c-17"}}, {"iban": "DE02-canary"}, ["/iban"]),
        ({"/deep/iban": "/customer"}, {"customer": 17, "deep": {"iban": ["DE02-canary"]}}, ["/deep/iban"]),
        ({"": "/customer"}, {"customer": "DE02-canary"}, [""]),
        ({"": {"name": "c-17"}}, "DE02-canary", [""]),
        ({"/iban": "/customer", "/name": "/customer"}, {**PAID, "name": None}, ["/iban", "/name"]),
    ],
)
async def test_what_the_node_declares_is_hidden_before_it_is_written(
    tmp_path: Path, personal: dict[str, Any], payload: Any, at: list[str]
) -> None:
    job, hiding = OneWaitingJob({"personal": personal}), hiding_in(tmp_path)
    await said(job, hiding, payload)
    (sent,) = job.sent
    assert "canary" not in sent.model_dump_json()
    places = list(hidden_places(sent.payload))
    assert [one.at for one in places] == at
    value, _ = await hiding.opened(h.TENANT, h.JOB, places[0].value)
    assert "canary" in json.dumps(value)
    assert (await said(job, hiding, payload)).answered  # the same again
    assert len(job.sent) == 1


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        ({"iban": "DE02-canary"}, "payload/iban"),
        ({"customer": "", "iban": "DE02-canary"}, "payload/iban"),
        ({"customer": {"a": 1}, "iban": "DE02-canary"}, "payload/iban"),
        ({"customer": "c-17", "Iban": "DE02-canary"}, "payload/iban"),
        ("DE02-canary", "payload/iban"),
        ([{"customer": "c-17", "iban": "DE02-canary"}], "payload/iban"),
        (None, "payload/iban"),
    ],
)
async def test_a_signal_that_cant_be_hidden_is_refused_with_words_and_not_said(
    tmp_path: Path, payload: Any, field: str
) -> None:
    job = OneWaitingJob({"personal": IBAN})
    with pytest.raises(BadRequestProblem) as refused:
        await said(job, hiding_in(tmp_path), payload)
    assert (refused.value.code, refused.value.field) == ("personal_not_served", field)
    assert "canary" not in json.dumps(refused.value.body())
    assert (job.sent, keys(tmp_path)) == ([], 0)


async def test_without_a_store_of_keys_it_is_refused() -> None:
    job = OneWaitingJob({"personal": IBAN})
    with pytest.raises(BadRequestProblem, match="AETHERIS_SUBJECT_KEYS is not set"):
        await said(job, None, PAID)
    assert job.sent == []
    plain = OneWaitingJob({})
    await said(plain, None, PAID)
    assert plain.sent[0].payload == PAID


async def test_who_may_not_signal_or_signals_too_late_makes_no_persons_key(tmp_path: Path) -> None:
    job, hiding = OneWaitingJob({"personal": IBAN}), hiding_in(tmp_path)
    mallory = Principal("mallory", h.TENANT, PrincipalKind.PERSON, frozenset({Role.APPROVE}))
    with pytest.raises(ForbiddenProblem):
        await said(job, hiding, PAID, mallory)
    with pytest.raises(Problem):
        await said(job, hiding, PAID, key="no such key")
    job.told.append(ev.JobStopping(job_id=h.JOB, by="ann", reason="failed", up_to_revision=0))
    with pytest.raises(ConflictProblem):
        await said(job, hiding, PAID)
    assert (job.sent, keys(tmp_path)) == ([], 0)


async def test_another_payload_is_no_repeat_and_an_erased_person_is_not_signalled_of(tmp_path: Path) -> None:
    job, hiding = OneWaitingJob({"personal": IBAN}), hiding_in(tmp_path)
    await said(job, hiding, PAID)
    with pytest.raises(ConflictProblem, match="another payload"):
        await said(job, hiding, {**PAID, "iban": "DE03"})
    await hiding.keys.erase(h.TENANT, "c-17")
    with pytest.raises(ConflictProblem) as refused:
        await said(job, hiding, PAID)
    assert refused.value.code == "erased"


@pytest.mark.parametrize(
    ("payload", "hidden"),
    [
        ({"customer": "c", "iban": VALUE}, True),
        ({"customer": "c", "iban": "DE02"}, False),
        ({"customer": "c", "iban": [VALUE]}, False),
        ({"customer": "c", "iban": {"$hidden": {}}}, False),
        ({"customer": "c"}, False),
        (VALUE, False),
        ("DE02", False),
    ],
)
def test_the_ledger_takes_a_signal_only_with_its_values_hidden(payload: Any, *, hidden: bool) -> None:
    assert is_hidden(Wait.model_validate({"key": "p", "personal": IBAN}), payload) is hidden
    assert is_hidden(Wait(key="p"), payload)


@pytest.mark.parametrize(
    "node",
    [
        {"kind": "timer", "wait": {"for_s": 1, "personal": IBAN}},
        {"kind": "wait", "wait": {"key": "p", "personal": {"/a": "/c", "/a/b": "/c"}}},
        {"kind": "wait", "wait": {"key": "p", "personal": {"": "/c", "/a": "/c"}}},
        {"kind": "human", "form": {"title": "t"}, "wait": {"timeout_s": 1, "personal": IBAN}},
    ],
)
def test_a_place_is_declared_once_and_by_a_wait_alone(node: dict[str, Any]) -> None:
    with pytest.raises(InvalidPlan, match="personal"):
        check_graph(TaskGraph.model_validate({"nodes": [{"id": "w", **node}]}).nodes)


@pytest.mark.parametrize("personal", [{}, {"iban": "/c"}, {"/iban": "c"}, {"/iban": {"name": ""}}, {"/iban": None}])
def test_a_declaration_names_a_place_and_a_person(personal: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="personal"):
        Wait.model_validate({"key": "p", "personal": personal})
