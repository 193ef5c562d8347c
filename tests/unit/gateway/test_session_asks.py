"""What the gateway lets be asked of a session, and what it says."""

from typing import Any

import pytest

from aetheris.gateway.core import session_asks
from aetheris.gateway.core.problems import BadRequestProblem, ConflictProblem
from aetheris.gateway.core.submissions import SubmissionRequest
from aetheris.planner.core.creations import creation_group
from aetheris.protocol import api_sessions as api
from aetheris.protocol.fold.state import KeyState, KeyStatus, Settled
from aetheris.protocol.messages.commands import RegistryEntry
from aetheris.protocol.planning.sessions import SESSION_ENTRY, AskRefused, SessionAsk, SessionBody, SessionCall

SCHEMA = {"type": "object", "properties": {"order": {"type": "string"}}, "additionalProperties": False}


def entry(name: str, **more: Any) -> RegistryEntry:
    fields = {"name": name, "version": "1", "schema": SCHEMA, "schema_hash": "h", "effect_class": "idempotent", **more}
    return RegistryEntry.model_validate(fields)


REGISTRY = {name: entry(name) for name in ("charge", "mail.send", "mail.read")} | {
    "flow": entry("flow", kind="workflow", effect_class="pure")
}
ASKED = SubmissionRequest("job", "ann", "t", "key")


def begin(**more: Any) -> Any:
    wanted = api.SessionAttachBody.model_validate({"run_id": "order-17", "tools": ["mail.*"], **more})
    return session_asks.begin_command(wanted, ASKED, REGISTRY)


def test_a_run_pins_what_it_names_and_the_planner_takes_it() -> None:
    command = begin()
    assert set((command.plan or {})["tools"]) == {"mail.send", "mail.read", SESSION_ENTRY.name}
    assert len(creation_group(command, "c").facts) == 2


def test_the_same_run_is_the_same_request_whichever_process_attaches() -> None:
    assert begin(body="one").request_hash == begin(body="two").request_hash
    assert begin().request_hash != begin(tools=["charge"]).request_hash
    assert session_asks.run_key("ann", "r") != session_asks.run_key("bob", "r")


@pytest.mark.parametrize("tools", [["nothing"], ["flow"], ["aetheris.session"]])
def test_what_is_no_tool_is_in_no_run(tools: list[str]) -> None:
    with pytest.raises(BadRequestProblem):
        begin(tools=tools)


def test_no_tool_with_personal_arguments_is_in_a_run() -> None:
    personal = {**SCHEMA, "properties": {"order": {"type": "string", "x-personal": "someone"}}}
    wanted = api.SessionAttachBody(run_id="r", tools=("charge",))
    with pytest.raises(BadRequestProblem, match="x-personal"):
        session_asks.begin_command(wanted, ASKED, {"charge": entry("charge", schema=personal)})


def test_an_ask_has_room_for_64_kib() -> None:
    ask = SessionAsk(call=SessionCall(body="b", tool="charge", args={"order": "x" * 64 * 1024}))
    with pytest.raises(BadRequestProblem, match="KiB"):
        session_asks.payload_of(ask)


@pytest.mark.parametrize("code", ["superseded", "unasked", "changed", "full", "over"])
def test_what_stands_against_an_ask_is_a_conflict_with_a_code(code: str) -> None:
    assert isinstance(session_asks.refusal(AskRefused(code, ("n",)), SessionBody(1), ()), ConflictProblem)


@pytest.mark.parametrize("code", ["unknown_repeat", "bad_call"])
def test_what_can_never_be_asked_is_a_bad_request(code: str) -> None:
    assert isinstance(session_asks.refusal(AskRefused(code, ("n",)), SessionBody(1), ()), BadRequestProblem)


def test_an_answer_says_whether_there_is_surely_no_effect() -> None:
    state = KeyState("n", status=KeyStatus.SETTLED, outcome=Settled.FAILED, sure=False, reason="lost")
    said = session_asks.call_answer("n", state, result=None, earlier=False)
    assert (said.status, said.sure, said.reason) == ("failed", False, "lost")
    assert session_asks.call_answer("n", None, result=None, earlier=False).status == "open"
    done = KeyState("n", status=KeyStatus.SETTLED, outcome=Settled.SUCCESS)
    assert (
        session_asks.call_answer("n", done, result=None, earlier=True).model_dump(exclude_unset=True)["result"] is None
    )
