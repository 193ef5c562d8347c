"""Two statements of one rule: the proofs' predicates and the services' fold, on histories made at random.

They share no code, so that a bug in one shows as a difference here.
"""

from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from aetheris.proofs import verify
from aetheris.proofs.history import History
from aetheris.proofs.phases import Phase
from aetheris.proofs.records import read
from aetheris.proofs.replay import look_up, scan
from aetheris.proofs.validity import Validity
from aetheris.protocol.fold.rules import apply
from aetheris.protocol.fold.state import JobState, create_job
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import Outcome, RejectReason, Via
from tests.testkit.proof_histories import JOB, Log, digest, node, tool
from tests.testkit.standalone import assert_agrees
from tests.testkit.tries import doubt_word, end_word, try_of

TOOLS = {
    "refund": tool("idempotent"),
    "burn": tool("opaque", irreversible=True),
}
UNDO = {"tool": "refund", "args": {}}
NODES = (node("a", compensate_with=UNDO), node("b", "burn"), node("c", "burn", "a"))
KEYS = {"a": ("a1", "a2"), "b": ("b1",), "c": ("c1",), "a.undo": ("u1",), "d": ("d1",)}
NODE_OF = {key: name for name, keys in KEYS.items() for key in keys}


KINDS = [
    *["start"] * 6,
    *["finish"] * 6,
    *["reopen", "park", "other"] * 2,
    "return",
    "reject",
    "decide",
    "ask",
    "allow",
    "again",
]


@st.composite
def _events(draw: st.DrawFn, job: JobState, keys: list[str]) -> tuple[str, dict[str, Any]]:
    """One event about a small world, in which everything may be stale or wrong."""
    key = draw(st.sampled_from(keys))
    body: dict[str, Any] = {"node_id": NODE_OF[key], "idempotency_key": key}
    invocations = [*job.keys[key].invocations] if key in job.keys else []
    named = {
        **body,
        "invocation_id": draw(
            st.sampled_from([*invocations, *invocations, *invocations[-1:], *job.invocation_keys, try_of("n0")])
        ),
    }
    match draw(st.sampled_from(KINDS)):
        case "start":
            return "start", {**body, "token": draw(st.integers(1, 3)), "attempt_id": draw(st.integers(0, 1))}
        case "finish":
            outcome = draw(st.sampled_from([*Outcome, *[Outcome.RETRYABLE, Outcome.PERMANENT] * 2])).value
            via = draw(st.sampled_from(["executor"] * 4 + [item.value for item in Via]))
            result = {"ok": draw(st.integers(0, 1))}
            reported = {"outcome": outcome, "via": via, "result": result, "output_hash": digest(result)}
            word = _word_of(draw, named["invocation_id"], end_word(named["invocation_id"], outcome, via))
            return "tool_invocation_finished", {**named, **reported, "word": word}
        case "reopen":
            by = draw(st.sampled_from(["policy", "probe", "human", "human"]))
            return "invocation_reopened", {**named, "by": by, "next_token": draw(st.sampled_from([2, 2, 3]))}
        case "return":
            returned = draw(st.booleans())
            word = _word_of(draw, named["invocation_id"], doubt_word(named["invocation_id"], returned=returned))
            return "invocation_in_doubt", {**named, "error_class": "E", "returned": returned, "word": word}
        case "park":
            return "invocation_parked", {**named, "reason": "r"}
        case "reject":
            return "invocation_rejected", {**body, "reason": draw(st.sampled_from([*RejectReason])).value}
        case "again":
            return "again", {}
        case "other":
            return draw(st.sampled_from(OTHERS))
        case kind:
            return _ground(draw, kind, body)


def _word_of(draw: st.DrawFn, invocation_id: str, own: str | None) -> str | None:
    """Mostly what belongs there; else none, another's, another that the try has, or what is none at all."""
    others = [doubt_word(invocation_id, returned=True), end_word(invocation_id, "success", "late"), invocation_id]
    return draw(st.sampled_from([own] * 12 + [None, end_word("n0", "retryable_failure", "late"), "0" * 64, *others]))


def _ground(draw: st.DrawFn, kind: str, body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    version: dict[str, Any] = {"args_hash": "h", "tool_version": draw(st.sampled_from(["1", "1", "2"])), "rule": "r"}
    if kind == "allow":
        return "policy_allowed", {**body, **version}
    version["token"] = draw(st.sampled_from([None, None, 1, 2, 3]))
    if kind == "ask":
        return "approval_requested", {**body, **version, "form": {}}
    decision = draw(st.sampled_from(["approve", "approve", "approve", "edit", "reject"]))
    shown = {"args_hash": draw(st.sampled_from(["h", "h", "other"]))}
    return "approval_decided", {**body, **version, **shown, "decision": decision, "approver": "me"}


def _revision(number: int, *nodes: dict[str, Any]) -> dict[str, Any]:
    diff = {"nodes": list(nodes), "tools": {}}
    return {"revision": number, "diff": diff, "plan_hash": digest(diff), "planner": "p", "planner_version": "1"}


OTHERS: list[tuple[str, dict[str, Any]]] = [
    ("job_stopping", {"by": "me", "reason": "r", "up_to_revision": 0}),
    ("job_stopping", {"by": "me", "reason": "r", "up_to_revision": 1}),
    ("cancel_requested", {"by": "me", "compensate": True}),
    ("job_cancelled", {"by": "me"}),
    ("job_paused", {"number": 1, "by": "me"}),
    ("job_paused", {"number": 2, "by": "me"}),
    ("job_resumed", {"number": 1, "by": "me"}),
    ("job_resumed", {"number": 2, "by": "me"}),
    *[
        (kind, {"scope": scope, "number": number, "by": "me", "at": ""})
        for kind in ("job_frozen", "job_unfrozen")
        for scope, number in (
            ({"tenant": "t"}, 1),
            ({"tenant": "t", "agent": "me"}, 2),
            ({"tenant": "t", "agent": "else"}, 1),
            ({"tool": "burn"}, 1),
            ({"tool": "burn"}, 2),
        )
    ],
    *[
        ("job_unfrozen", {"scope": {"tool": "burn"}, "number": 2, "by": "me", "at": "", "ordered": ordered})
        for ordered in (0, 1, 2)
    ],
    ("worker_ended", {"worker_id": "w", "incarnation": "gone", "how": "lock"}),
    ("worker_ended", {"worker_id": "w", "incarnation": "gone", "how": "human", "by": "me", "evidence": "e"}),
    ("plan_generated", _revision(1, node("a.undo", compensates="a"))),
    ("plan_generated", _revision(1, node("a.undo", args={"x": 1}, compensates="a"))),
    ("plan_generated", _revision(1, node("a", args={"x": 1}))),
    ("plan_generated", _revision(1, node("d"))),
    ("plan_generated", _revision(2, node("a"), node("b", "burn"))),
]


def _first() -> list[tuple[str, dict[str, Any]]]:
    graph = {"tools": TOOLS, "nodes": list(NODES)}
    return [
        ("job_created", {"tenant": "t", "submitted_by": "me", "request_hash": "r", "plan": graph}),
        ("plan_generated", {**_revision(0), "task_graph": graph, "diff": None, "plan_hash": digest(graph)}),
    ]


def _start(key: str, invocation_id: str, revision: int = 0, **more: Any) -> tuple[str, dict[str, Any]]:
    fixed = {"token": 1, "attempt_id": 0, "kind": "tool", "tool_name": "t", "tool_version": "1", "args_hash": "h"}
    named = {"node_id": NODE_OF[key], "idempotency_key": key, "invocation_id": try_of(invocation_id)}
    named |= {"revision": revision}
    outside = {"external_key": f"aetheris:{JOB}:{NODE_OF[key]}:0", "content_key": "same", "occurrence": 1}
    return "tool_invocation_started", {**fixed, **named, **outside, "worker_id": "w", "incarnation": "i", **more}


def _finish(
    key: str, invocation_id: str, outcome: str = "success", via: str = "executor"
) -> tuple[str, dict[str, Any]]:
    named = {"node_id": NODE_OF[key], "idempotency_key": key, "invocation_id": try_of(invocation_id)}
    reported = {"outcome": outcome, "via": via, "result": {}, "output_hash": digest({})}
    return "tool_invocation_finished", {**named, **reported, "word": end_word(invocation_id, outcome, via)}


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, dict[str, Any]]]:
    """Events of one job, each try with a nonce of its own; most starts fit the state that the fold is in."""
    events = _first()
    keys = draw(st.sampled_from([["a1"], ["a1", "a1", "a2"], ["b1", "c1"], ["a1", "a2", "b1", "c1"], ["a1", "u1"]]))
    events += [_ground(draw, "allow", {"node_id": key[0], "idempotency_key": key}) for key in keys if key[0] in "bc"]
    job = _fold(events)
    for count in range(draw(st.integers(1, 30))):
        kind, body = draw(_events(job, keys))
        earlier = [event for event in events if event[0] == "tool_invocation_started"]
        if kind == "again":
            kind, body = draw(st.sampled_from(earlier or OTHERS))
        if kind == "start":
            kind, body = "tool_invocation_started", _started(draw, job, body, count)
        events.append((kind, body))
        apply(job, ev.EVENTS[kind].model_validate({"job_id": JOB, **body}), len(events) - 1)
    return events


def _started(draw: st.DrawFn, job: JobState, body: dict[str, Any], count: int) -> dict[str, Any]:
    state = job.keys.get(body["idempotency_key"])
    if draw(st.integers(0, 4)):
        body |= {"token": state.fencing_token if state else 1, "attempt_id": state.external_attempt - 1 if state else 0}
    revision = draw(st.sampled_from([job.revision, job.revision, 0, 1]))
    done = [key for key in job.keys.values() if key.result_hash]
    after = [{"invocation_id": key.settled_by, "result_hash": key.result_hash} for key in done]
    wrong = [{"invocation_id": try_of(f"n{max(0, count - 1)}"), "result_hash": digest({"ok": 0})}]
    return body | {
        "invocation_id": try_of(f"n{count}"),
        "revision": revision,
        "external_key": f"aetheris:{JOB}:{body['node_id']}:{body['attempt_id']}",
        "kind": "tool",
        "tool_name": "t",
        "tool_version": "1",
        "args_hash": "h",
        "content_key": "same",
        "occurrence": 1,
        "after": draw(st.sampled_from([[], [], after, wrong])),
        "worker_id": "w",
        "incarnation": draw(st.sampled_from(["i", "i", "gone"])),
    }


def _fold(events: list[tuple[str, dict[str, Any]]]) -> JobState:
    created, *rest = [ev.EVENTS[kind].model_validate({"job_id": JOB, **body}) for kind, body in events]
    assert isinstance(created, ev.JobCreated)
    job = create_job(created, 0)
    for offset, event in enumerate(rest, 1):
        apply(job, event, offset)
    return job


def _log(events: list[tuple[str, dict[str, Any]]]) -> Log:
    log = Log(created=False)
    for kind, body in events:
        log.add(kind, **body)
    return log


def _judge(events: list[tuple[str, dict[str, Any]]]) -> Validity:
    return Validity(History(read(record, at)[0] for at, record in enumerate(_log(events).records)))


COMPENSATED: list[tuple[str, dict[str, Any]]] = [
    *_first(),
    _start("a1", "n1"),
    _finish("a1", "n1"),
    ("policy_allowed", {"node_id": "b", "idempotency_key": "b1", "args_hash": "h", "tool_version": "1", "rule": "r"}),
    _start("b1", "n2"),
    _finish("b1", "n2", "permanent_failure"),
    ("job_stopping", {"by": "me", "reason": "r", "up_to_revision": 0}),
    ("cancel_requested", {"by": "me", "compensate": True}),
    ("plan_generated", _revision(1, node("a.undo", compensates="a"))),
    _start("u1", "n3", 1),
    _finish("u1", "n3"),
]


def _word(kind: str, key: str, token: int | None = None, **more: Any) -> tuple[str, dict[str, Any]]:
    """A request, a decision or the policy's word about a call."""
    named = {"node_id": NODE_OF[key], "idempotency_key": key, "args_hash": "h", "tool_version": "1", "rule": "r"}
    by = {"approval_requested": {"form": {}}, "approval_decided": {"decision": "approve", "approver": "you"}}
    return kind, {**named, "token": token, **by.get(kind, {}), **more}


def _about(kind: str, key: str, invocation_id: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return kind, {"node_id": NODE_OF[key], "idempotency_key": key, "invocation_id": try_of(invocation_id), **more}


def retried(key: str) -> list[tuple[str, dict[str, Any]]]:
    """A call that is approved, parked, retried by hand, approved anew, reopened by policy, parked and retried again."""
    by_hand = {"by": "human", "evidence": [{"by": "you", "evidence": "looked"}]}
    return [
        *_first(),
        _word("approval_requested", key),
        _word("approval_decided", key),
        _start(key, "n1"),
        _about("invocation_parked", key, "n1", reason="r"),
        _about("invocation_reopened", key, "n1", next_token=2, **by_hand),
        _word("approval_requested", key, 2),
        _word("approval_decided", key, 2),
        _start(key, "n2", token=2),
        _about("invocation_reopened", key, "n2", next_token=3, by="policy"),
        _start(key, "n3", token=3),
        _about("invocation_parked", key, "n3", reason="r"),
        _about("invocation_reopened", key, "n3", next_token=4, **by_hand),
        _word("approval_requested", key, 4),
        _word("approval_decided", key, 4),
        _start(key, "n4", token=4),
        _finish(key, "n4"),
    ]


def test_they_agree_on_what_a_retry_by_hand_needs() -> None:
    random = Random(8)  # noqa: S311  a test's histories
    started = 0
    for _ in range(600):
        key = random.choice(["a1", "b1"])
        events = altered(random, key)
        agree(events)
        started += len(_judge(events).valid[key])
    assert started > 600, "hardly anything started"


def altered(random: Random, key: str) -> list[tuple[str, dict[str, Any]]]:
    """A retried call, with up to three things left out, repeated, moved, put in or given another token."""
    events = retried(key)
    others = [_word("policy_allowed", key), _word("approval_decided", key, random.choice([None, 2, 3, 4]))]
    others += [_word("invocation_rejected", key, reason=reason) for reason in ("approval", "expired")]
    others.append(_word("approval_decided", key, random.choice([None, 2, 4]), decision="reject"))
    for _ in range(random.randint(0, 3)):
        place, other = random.randrange(2, len(events)), random.randrange(2, len(events))
        match random.randrange(5):
            case 0:
                del events[place]
            case 1:
                events.insert(other, events[place])
            case 2:
                events.insert(other, events.pop(place))
            case 3:
                events.insert(place, random.choice(others))
            case _:
                kind, body = events[place]
                token = random.choice([None, 1, 2, 3, 4])
                named = kind != "tool_invocation_started"
                events[place] = kind, body | {"token": token if named else token or 1}
    return events


@settings(max_examples=300, deadline=None)
@given(histories())
def test_predicates_and_fold_agree(events: list[tuple[str, dict[str, Any]]]) -> None:
    agree(events)


def test_they_agree_on_what_a_stop_lets_through() -> None:
    random = Random(7)  # noqa: S311  a test's histories
    for _ in range(300):
        agree(undone(random))


def undone(random: Random) -> list[tuple[str, dict[str, Any]]]:
    """What belongs to a compensation, with one thing left out, repeated or moved."""
    events = [*COMPENSATED]
    place, other = random.randrange(2, len(events)), random.randrange(2, len(events))
    match random.randrange(4):
        case 0:
            del events[place]
        case 1:
            events.insert(other, events[place])
        case 2:
            events.insert(other, events.pop(place))
        case _:
            events.insert(place, random.choice(OTHERS))
    return events


def agree(events: list[tuple[str, dict[str, Any]]]) -> None:
    job, validity = _fold(events), _judge(events)
    end = len(events)
    assert validity.history.plans.in_force(end) == job.revision
    for key in [key for keys in KEYS.values() for key in keys]:
        state = job.keys.get(key)
        settled = validity.final(key)
        if state is None:
            assert (validity.phase(key, end), settled) == (Phase.NONE, None)
            continue
        assert validity.phase(key, end).value == state.status.value
        asking = validity.askings(key, end)[-1]
        asked, decided = validity.request(key, asking, end), validity.decision(key, asking, end)
        assert asking.token == state.asks
        assert (asked is None, decided is None) == (state.requested is None, state.decision is None)
        assert set(state.invocations) == {start.invocation_id for start in validity.valid.get(key, [])}
        if settled is None:
            assert (validity.token(key, end), validity.external_attempt(key, end)) == (
                state.fencing_token,
                state.external_attempt - 1,
            )
            assert validity.live(key, end) == state.unresolved
        else:
            assert state.outcome is not None
            assert (settled.outcome, settled.sure) == (state.outcome.value, state.sure)
            assert settled.outcome == "rejected" or settled.fact.invocation_id == state.settled_by


def test_they_agree_on_a_retry_by_hand_of_what_has_settled() -> None:
    parked = [_start("a1", "n1"), _about("invocation_parked", "a1", "n1", reason="r"), _finish("a1", "n1")]
    asked = _word("approval_requested", "a1")
    agree([*_first(), *parked, asked, _about("invocation_reopened", "a1", "n1", next_token=2, by="human")])


def test_they_agree_on_a_void_start_that_comes_again() -> None:
    allowed = {"node_id": "b", "idempotency_key": "b1", "args_hash": "h", "tool_version": "1", "rule": "r"}
    events = [*_first(), _start("b1", "n1"), ("policy_allowed", allowed), _start("b1", "n1"), _finish("b1", "n1")]
    agree(events)
    records = _log(events).records
    report = verify(records)
    assert [broken.rule for broken in report.violations] == ["success_without_valid_start"]
    assert_agrees(report, records)


@settings(max_examples=300, deadline=None)
@given(histories())
def test_the_bundles_script_agrees(events: list[tuple[str, dict[str, Any]]]) -> None:
    """Three statements: the script of the evidence bundle shares code with neither."""
    records = _log(events).records
    assert_agrees(verify(records), records)


@settings(max_examples=100, deadline=None)
@given(histories())
def test_scan_and_index_derive_the_same(events: list[tuple[str, dict[str, Any]]]) -> None:
    validity = _judge(events)
    assert scan(validity) == look_up(validity)
