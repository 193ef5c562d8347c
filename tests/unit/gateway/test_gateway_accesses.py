"""Who looked: which requests are told, the chain that they make, and what is said of what could not be kept."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from aetheris.gateway import access_log
from aetheris.gateway.access_log import AccessLog
from aetheris.gateway.core.access import OPEN, ROUTES, Access
from aetheris.gateway.core.accesses import ACTIONS, Told, Visit
from aetheris.gateway.core.principal import Principal
from aetheris.protocol.base.principals import PrincipalKind, Role
from aetheris.protocol.base.records import Group
from aetheris.protocol.messages.accesses import AccessAction, AccessChains, chained, of_chain
from aetheris.runtime.telemetry.metrics import Metrics
from aetheris.testkit.clock import VirtualClock

ANN = Principal("ann", "acme", PrincipalKind.PERSON, frozenset({Role.READ_PAYLOADS, Role.AUDIT}))
EVENTS = "GET /api/jobs/{job_id}/events"


class Kept:
    """A log that takes what it is given, as soon as it is open."""

    def __init__(self) -> None:
        self.written: list[dict[str, Any]] = []
        self.open = asyncio.Event()
        self.open.set()

    async def append(self, groups: Sequence[Group]) -> None:
        await self.open.wait()
        self.written += [json.loads(draft.value) for group in groups for draft in group]


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def log(kept: Kept, clock: VirtualClock) -> AccessLog:
    return AccessLog(kept, Metrics("gateway"), clock)


def read(job: str = "j") -> Visit:
    return Visit(EVENTS, "192.0.2.1", ANN, job)


def faults(written: Sequence[dict[str, Any]], *, whole: bool = True) -> list[str]:
    chains = AccessChains(whole)
    for one in written:
        chains.see(one)
    return [fault.partition(": ")[2] for fault in chains.faults]


async def test_records_follow_from_each_other_and_name_who_what_and_when(log: AccessLog, kept: Kept) -> None:
    log.began("aetheris 1")
    log.answered(read(), 200)
    log.answered(Visit("POST /api/ecs/respond", "192.0.2.1", None, reason="unknown"), 401)
    await log.close()
    assert [one["action"] for one in kept.written] == ["started", "login", "read", "refused", "stopped"]
    assert kept.written[2]["principal"] == {"id": "ann", "kind": "person", "roles": ["audit", "read_payloads"]}
    assert (kept.written[2]["subject"], kept.written[3]["reason"]) == ("j", "unknown")
    assert faults(kept.written) == []
    assert log.reported()["head"] == kept.written[-1]["head"]


async def test_what_is_taken_out_changed_or_put_in_is_seen(log: AccessLog, kept: Kept) -> None:
    log.began("aetheris 1")
    for number in range(4):
        log.answered(read(f"j{number}"), 200)
    await log.close()
    written = kept.written
    assert faults([*written[:2], *written[3:]]) == ["the one before it is missing"]
    assert faults(written[1:]) == ["what was before it is missing"]
    assert faults(written[1:], whole=False) == []
    assert faults([written[0], written[1] | {"subject": "another"}, *written[2:]]) == ["is not as it was written"]
    forged = chained({"at": "t", "action": "read"}, written[0]["incarnation"], 2, written[0]["head"])
    told = forged.model_dump(mode="json", exclude_none=True)
    assert faults([written[0], told, *written[2:]]) == ["does not follow from the one before it"]
    assert faults([*written, told]) == ["there is another of this number"]
    assert faults([{"number": 1}]) == [""]


async def test_what_an_unsure_append_wrote_twice_counts_once(log: AccessLog, kept: Kept) -> None:
    log.began("aetheris 1")
    log.answered(read(), 200)
    await log.close()
    chains = AccessChains()
    seen = [chains.see(one) for one in (*kept.written, *kept.written)]
    assert seen == [True] * 4 + [False] * 4
    assert (chains.faults, chains.count) == ([], 4)


async def test_of_other_tenants_records_only_their_place_is_seen_and_checked(log: AccessLog, kept: Kept) -> None:
    log.began("aetheris 1")
    log.answered(read(), 200)
    await log.close()
    hidden = [of_chain(one) for one in kept.written]
    assert "ann" not in json.dumps(hidden)
    assert faults([kept.written[0], *hidden[1:3], kept.written[3]]) == []
    assert faults([hidden[0], *hidden[2:]]) == ["the one before it is missing"]
    assert faults([kept.written[0] | {"hidden": True}]) == ["is not as it was written"]


async def test_while_kafka_is_away_so_many_are_kept_and_the_others_counted_and_told(
    log: AccessLog, kept: Kept, monkeypatch: pytest.MonkeyPatch, clock: VirtualClock
) -> None:
    monkeypatch.setattr(access_log, "MOST_WAITING", 10)
    kept.open.clear()
    log.began("aetheris 1")
    for number in range(30):
        log.answered(read(f"j{number}"), 200)
    assert log.unready() is not None
    assert (log.reported()["waiting"], log.reported()["lost"]) == (10, 22)
    writing = asyncio.create_task(log.run())
    await clock.advance(1.0)
    assert kept.written == []
    kept.open.set()
    while log.reported()["waiting"]:
        await clock.advance(0.1)
    writing.cancel()
    await asyncio.wait({writing})
    await log.close()
    assert log.unready() is None
    lost = [one for one in kept.written if one["action"] == "lost"]
    assert [one["count"] for one in lost] == [22]
    assert faults(kept.written) == []


def test_the_same_is_told_once_in_a_while_and_each_decision_always() -> None:
    told = Told()
    assert told.actions(read(), 200, 0.0) == [AccessAction.LOGIN, AccessAction.READ]
    assert told.actions(read(), 200, 59.0) == []
    assert told.actions(read("other"), 200, 59.0) == [AccessAction.READ]
    assert told.actions(read(), 200, 60.0) == [AccessAction.READ]
    assert told.actions(read(), 200, 3600.0) == [AccessAction.LOGIN, AccessAction.READ]
    answer = Visit("POST /api/ecs/respond", "192.0.2.1", ANN, "r")
    assert [told.actions(answer, 200, 3601.0) for _ in range(2)] == [[AccessAction.DECIDED]] * 2
    assert told.actions(Visit("GET /api/jobs/{job_id}/evidence", "192.0.2.1", ANN, "j"), 500, 3602.0) == []


def test_who_guesses_from_many_addresses_is_told_of_once_he_is_slowed() -> None:
    told = Told()
    guesses = [Visit("GET /api/jobs", f"192.0.2.{number}", reason="too_many") for number in range(100)]
    assert [one for guess in guesses for one in told.actions(guess, 429, 0.0)] == [AccessAction.REFUSED]
    assert told.actions(guesses[0], 401, 0.0) == [AccessAction.REFUSED]
    assert told.actions(guesses[1], 401, 0.0) == [AccessAction.REFUSED]


def shows_payloads(needed: Access) -> bool:
    return needed is not OPEN and set(needed.roles) <= {Role.READ_PAYLOADS, Role.APPROVE, Role.AUDIT}


def test_each_route_that_shows_payloads_or_takes_decisions_is_told() -> None:
    untold = {route for route, needed in ROUTES.items() if shows_payloads(needed)} - ACTIONS.keys()
    assert untold == {"POST /api/jobs/{job_id}/continue"}  # which makes a job, whose log has it
    administered = {route for route, needed in ROUTES.items() if set(needed.roles) == {Role.ADMINISTER}}
    assert {"POST /api/subjects/erase"} <= administered <= ACTIONS.keys()
    assert ACTIONS.keys() <= ROUTES.keys()


def test_what_reached_into_another_tenant_is_told_each_time_with_both_tenants() -> None:
    told = Told()
    for route in ("POST /api/jobs/{job_id}/cancel", "GET /api/jobs"):
        assert AccessAction.ACROSS not in told.actions(Visit(route, "192.0.2.1", ANN, "j"), 200, 0.0)
        across = Visit(route, "192.0.2.1", ANN, "j", other_tenant="globex")
        for at_s in (0.0, 1.0):
            assert told.actions(across, 200, at_s)[-1:] == [AccessAction.ACROSS]
        assert AccessAction.ACROSS not in told.actions(across, 409, 2.0)
        body = across.body(AccessAction.ACROSS, 200)
        assert (body["tenant"], body["other_tenant"], body["subject"]) == ("acme", "globex", "j")
