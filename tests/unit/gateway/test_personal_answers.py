"""An answer with personal values to a request that is answered already: who may not answer makes no person's key."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import ConflictProblem
from aetheris.gateway.hidden_submissions import HiddenSubmissions
from aetheris.gateway.human_requests import HumanRequests
from aetheris.gateway.views import Row
from aetheris.protocol.base.allowed_signers import AllowedSigners
from aetheris.protocol.base.principals import PrincipalKind, Role
from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages import events as ev
from aetheris.protocol.planning.approvals import request_id
from aetheris.runtime.base.clock import SystemClock
from tests.testkit import histories as h
from tests.unit.gateway.test_opened_values import NoDeadlines
from tests.unit.runtime.test_subject_keys import hiding_in

FORM: dict[str, Any] = {
    "title": "?",
    "fields": [
        {"name": "who", "type": "text", "label": "w"},
        {"name": "email", "type": "text", "label": "e", "personal": "/who"},
    ],
}


class OneJob:
    """Its row, and its reader, of the state."""

    def __init__(self, state: JobState) -> None:
        self.state, self.end = state, 9

    async def listed(self, _job_id: str) -> Row:
        return Row(h.JOB, h.TENANT, "running", "r", "ann", "2026-01-01T00:00:00+00:00")

    @asynccontextmanager
    async def listening(self, _job_id: str) -> AsyncGenerator[None]:
        yield

    async def fold(self, _row: object) -> "OneJob":
        return self


def answered_job() -> JobState:
    node = {"id": "a", "kind": "human", "tool": None, "form": FORM}
    plan = h.planned(h.graph(node))
    asked = h.about(ev.JobWaiting, "a", tool="human", wait_type="human", form=FORM, approvers=("boss",))
    given = h.about(ev.WaitCompleted, "a", tool="human", wait_type="human", by="boss", payload={"who": "c-1"})
    return h.fold(plan, asked, given)


@pytest.mark.parametrize(("who", "keys"), [("mallory", 0), ("boss", 1)])
async def test_who_may_not_answer_makes_no_persons_key(tmp_path: Path, who: str, keys: int) -> None:
    hiding = hiding_in(tmp_path)
    job = cast("Any", OneJob(answered_job()))
    requests = HumanRequests(
        reader=job,
        writer=cast("Any", None),
        views=cast("Any", None),
        rows=job,
        registry=cast("Any", None),
        deadlines=NoDeadlines(),
        clock=SystemClock(),
        signers=AllowedSigners(),
        hidden=HiddenSubmissions(hiding),
    )
    wanted = {"request_id": request_id(h.JOB, "a", h.key_of("a", tool="human")), "action": "approve"}
    body = json.dumps({**wanted, "data": {"who": "made-up", "email": "x@example.org"}}).encode()
    caller = Principal(who, h.TENANT, PrincipalKind.PERSON, frozenset({Role.APPROVE, Role.READ_PAYLOADS}))
    with pytest.raises(ConflictProblem):
        await requests.respond(caller, body)
    folder = tmp_path / "subjects" / "keys"
    assert len(list(folder.glob("*"))) == keys
