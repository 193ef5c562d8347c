"""The replay proof: what a replay would inject, derived twice, agrees with what planner and ledger recorded."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

from aetheris.proofs.canonical import hash_or_empty
from aetheris.proofs.compensation import COMPENSATED, compensation_violations, succeeded
from aetheris.proofs.history import PERMANENT, RETRYABLE, SUCCESSES, History
from aetheris.proofs.phases import Settlement, is_number, token_of
from aetheris.proofs.records import Fact, Violation, violation
from aetheris.proofs.validity import Validity

DONE = frozenset({"success", "side_effect_committed", "compensated"})
TOOK_EFFECT = frozenset({"success", "side_effect_committed", "compensatable_failure"})
WAITING = ("wait", "timer", "human")
"""Kinds of nodes that nobody runs."""

_MOVING = frozenset(
    {
        *("tool_invocation_started", "tool_invocation_finished", "approval_requested", "approval_decided"),
        *("invocation_rejected", "invocation_parked", "invocation_reopened"),
    }
)
"""What changes how a key stands; all else is passed over."""

_UNSEEN = frozenset({"success"})
_COMMITTED = frozenset({"side_effect_committed"})
_PARTIAL = _COMMITTED | {"compensatable_failure"}


@dataclass(frozen=True, slots=True)
class ReplayProof:
    """`error` is the first disagreement, in log order; empty where there is none."""

    violations: tuple[Violation, ...] = ()

    @property
    def error(self) -> str:
        """What a replay would stumble over first."""
        return self.violations[0].message if self.violations else ""

    def to_json(self) -> dict[str, Any]:
        """{ok, error}."""
        return {"ok": not self.violations, "error": self.error}


@dataclass(frozen=True, slots=True)
class Context:
    """What a replay injects and what it would still wait for: key → the event that settled it, pending keys."""

    settled: dict[str, int]
    pending: frozenset[str]


def replay_proof(validity: Validity) -> ReplayProof:
    """Derive the replay context twice and compare it with the planner's records."""
    found = [
        *_compare(validity.history, scan(validity), look_up(validity)),
        *_tokens(validity),
        *_uncommitted(validity),
        *_stray_commits(validity),
        *_nodes(validity),
        *_completion(validity),
        *_results(validity),
        *compensation_violations(validity),
    ]
    return ReplayProof(tuple(sorted(found)))


def look_up(validity: Validity) -> Context:
    """By key: each key's settlement, from the indexes."""
    settlements = {key: validity.final(key) for key in validity.started_keys()}
    return Context(
        {key: settled.fact.at for key, settled in settlements.items() if settled is not None},
        frozenset(key for key, settled in settlements.items() if settled is None),
    )


@dataclass(slots=True)
class _Seen:
    """What a forward scan remembers of a key."""

    start: Fact | None = None
    """Of the try in charge."""
    holder: str = ""
    open: bool = True
    parked: bool = False
    alive: set[str] = field(default_factory=set[str])
    approved: str = ""
    invocations: int = 0
    asked: bool = False
    asks: int = 1
    """The token that requests and decisions must carry."""


def scan(validity: Validity) -> Context:
    """Forward: one pass over the records from the first, with nothing but what was seen before."""
    seen: dict[str, _Seen] = {}
    settled: dict[str, int] = {}
    started: set[str] = set()
    for fact in validity.history.facts:
        key = fact.key
        if not key or fact.type not in _MOVING or key in settled or fact.at in validity.history.unproven:
            continue
        state = seen.get(key)
        if state is None:
            state = seen[key] = _Seen()
        if fact.type == "tool_invocation_started" and validity.is_valid(fact):
            started.add(key)
            state.start, state.holder, state.open, state.parked = fact, fact.invocation_id, False, False
            state.alive.add(fact.invocation_id)
            state.invocations += 1
        elif fact.type in ("approval_requested", "approval_decided"):
            _hear(fact, state)
        elif _closes(fact, state):
            if validity.may_settle(fact):
                settled[key] = fact.at
        else:
            _hand_over(validity, fact, state)
    return Context({key: at for key, at in settled.items() if key in started}, frozenset(started - settled.keys()))


def _closes(fact: Fact, state: _Seen) -> bool:
    if fact.type == "invocation_rejected":
        late = fact.text("reason") in ("approval", "edited", "expired") and state.approved == "approve"
        return state.open and not late
    if fact.type != "tool_invocation_finished":
        return False
    if fact.outcome in SUCCESSES:
        return fact.invocation_id in state.alive
    if fact.outcome != PERMANENT or not state.holder or fact.invocation_id != state.holder:
        return False
    match fact.text("via"):
        case "executor" | "late":
            return fact.invocation_id in state.alive
        case "ledger":
            return not state.parked
        case "human":
            return state.parked
        case _:
            return False


def _hear(fact: Fact, state: _Seen) -> None:
    if not is_number(token_of(fact), state.asks):
        return
    if fact.type == "approval_requested":
        state.asked = state.asked or (state.open and state.invocations == state.asks - 1)
    else:
        state.approved = state.approved or fact.text("decision")


def _hand_over(validity: Validity, fact: Fact, state: _Seen) -> None:
    holds = fact.invocation_id == state.holder and not state.open
    if fact.type == "tool_invocation_finished" and fact.outcome == RETRYABLE:
        if fact.invocation_id in state.alive:
            state.alive.discard(fact.invocation_id)
            if holds:
                state.open, state.parked = True, False
    elif fact.type == "invocation_parked" and holds:
        state.parked = True
    elif fact.type == "invocation_reopened" and holds and _gives_up(validity, fact, state):
        if state.parked and (state.asked or validity.is_irreversible(fact.node, fact.at)):
            state.approved, state.asked, state.asks = "", False, state.invocations + 1
        state.open, state.parked = True, False


def _gives_up(validity: Validity, reopened: Fact, state: _Seen) -> bool:
    """A person has what is parked tried again; by a probe it is, too, once its try can act no more."""
    by = reopened.text("by")
    if not state.parked or by == "human":
        return state.parked == (by == "human")
    ended = validity.end_of(state.start) if by == "probe" and state.start is not None else None
    return ended is not None and ended < reopened.at


def _compare(history: History, first: Context, second: Context) -> Iterator[Violation]:
    if first == second:
        return
    differing = dict(first.settled.items() ^ second.settled.items())
    place = min(differing.values(), default=0)
    yield violation("derivations_differ", history.facts[place], "scan and index derive different invocations")


def _tokens(validity: Validity) -> Iterator[Violation]:
    """The ledger's own derivation, as far as the history holds it: the token that follows a reopening."""
    if not validity.history.reopens:
        return
    for key in validity.started_keys():
        for token, start in enumerate(validity.valid[key], 1):
            given_up = validity.handover(start)
            fact = validity.history.facts[given_up.at] if given_up is not None else start
            counts = fact.type == "invocation_reopened" and validity.settlement(key, fact.at) is None
            if counts and not is_number(fact.body.get("next_token"), token + 1):
                yield violation("derivations_differ", fact, f"key {key} goes on with token {token + 1}, not as said")


def _uncommitted(validity: Validity) -> Iterator[Violation]:
    """A success and its command_committed are one batch; the last record may be its first half."""
    history = validity.history
    for key in validity.started_keys():
        settled = validity.final(key)
        if settled is None or not settled.succeeded or settled.fact.at == len(history.facts) - 1:
            continue
        wanted, is_there = settled.fact.body.get("output_hash"), False
        for commit in history.commits.get(key, ()):
            is_there = is_there or commit.body.get("output_hash") == wanted
        if not is_there:
            yield violation(
                "not_committed", settled.fact, f"key {key} succeeded, but no command_committed says the same"
            )


def _stray_commits(validity: Validity) -> Iterator[Violation]:
    """A command_committed stands beside a success of its key, counted or void."""
    for key, commits in validity.history.commits.items():
        closings = validity.history.closings.get(key, ())
        reported = {fact.text("output_hash") for fact in closings if fact.outcome in SUCCESSES}
        for commit in commits:
            if commit.text("output_hash") not in reported:
                yield violation("stray_commit", commit, f"key {key} is committed, but no finished says so")


def _nodes(validity: Validity) -> Iterator[Violation]:
    """The planner's node_finished against what the invocations say."""
    first: dict[str, Fact] = {}
    for fact in validity.history.nodes_finished:
        earlier = first.setdefault(fact.node, fact)
        if earlier is fact:
            yield from _node(validity, fact)
        elif fact.event_id != earlier.event_id and fact.text("result_type") != COMPENSATED:
            yield violation("node_finished_twice", fact, f"node {fact.node} was finished by event {earlier.event_id}")


def _node(validity: Validity, fact: Fact) -> Iterator[Violation]:
    history = validity.history
    revision = history.plans.in_force(fact.at)
    if not history.plans.node(fact.node, revision):
        yield violation("unknown_node", fact, f"node {fact.node} is in no plan before it")
        return
    effect = succeeded(validity, fact.node, fact.at)
    if effect is not None:
        yield from _injected(validity, fact, effect)
    elif fact.text("result_type") in TOOK_EFFECT:
        yield from _waited(history, fact)


def _injected(validity: Validity, fact: Fact, effect: Settlement) -> Iterator[Violation]:
    expected = _result_types(validity, effect.fact)
    if fact.text("result_type") not in expected:
        wanted = " or ".join(sorted(expected))
        yield violation("result_type_differs", fact, f"node {fact.node} is {fact.text('result_type')}, not {wanted}")
    if fact.text("output_hash") != effect.fact.text("output_hash"):
        yield violation("injected_result_differs", fact, f"node {fact.node} carries another result than its invocation")


def _result_types(validity: Validity, settled: Fact) -> frozenset[str]:
    starts = validity.valid[settled.key]
    start = starts[0]
    if start.invocation_id != settled.invocation_id:
        start = next(one for one in starts if one.invocation_id == settled.invocation_id)
    planned = validity.planned(start)
    if planned.entry.get("kind", "tool") != "tool" or planned.tool.get("effect_class") == "pure":
        return _UNSEEN
    return _PARTIAL if settled.outcome == "compensatable_failure" else _COMMITTED


def _waited(history: History, fact: Fact) -> Iterator[Violation]:
    """Nodes of these kinds end by a wait's end, without an invocation; its payload is their result."""
    kind = history.plans.node(fact.node, history.plans.in_force(fact.at)).get("kind")
    waited = history.wait_end(fact.node, fact.at) if kind in WAITING else None
    if waited is None:
        result_type = fact.text("result_type")
        yield violation("unfounded_node", fact, f"node {fact.node} is {result_type}, but nothing settled it so before")
    elif not fact.text("output_hash") == waited.text("output_hash") == history.hash_of(waited, "payload"):
        yield violation("injected_result_differs", fact, f"node {fact.node} carries another result than its wait")


def _completion(validity: Validity) -> Iterator[Violation]:
    """Only the first terminal event counts; a completed job has finished every node of its last plan.

    But for calls of a model that went on without them.
    """
    history = validity.history
    end = history.end
    if end is None or end.type != "job_completed":
        return
    told = [fact for fact in history.nodes_finished if fact.at < end.at]
    done = {fact.node for fact in told if fact.text("result_type") in DONE}
    for node in history.plans.order(history.plans.in_force(end.at)):
        if history.plans.is_call(node):
            missing = any(True for _ in validity.keys_of_node(node)) and all(fact.node != node for fact in told)
        else:
            missing = node not in done and not _gone_without(validity, node, end)
        if missing:
            yield violation("incomplete", end, f"the job is completed, but node {node} is not done")
            return


def _results(validity: Validity) -> Iterator[Violation]:
    """What the end of a completed job carries of its nodes' results is theirs; that it carries all, nobody says."""
    history = validity.history
    end = history.end
    if end is None or end.type != "job_completed":
        return
    said = end.body.get("result")
    given = cast("dict[str, Any]", said) if isinstance(said, dict) else {}
    if said is not None and not isinstance(said, dict):
        yield violation("job_result_differs", end, "what it carries as results names no node")
    for node, value in given.items():
        if hash_or_empty(value) != _given(validity, node, end):
            yield violation("job_result_differs", end, f"it carries another result than node {node} gave")


def _given(validity: Validity, node: str, end: Fact) -> str | None:
    """The hash of what a node had given, by its call or as what it waited for; None where it is nothing, or large."""
    settled = succeeded(validity, node, end.at)
    if settled is not None:
        is_here = settled.fact.body.get("result_ref") is None
        return validity.history.hash_of(settled.fact, "result") if is_here else None
    waited = validity.history.wait_end(node, end.at)
    return validity.history.hash_of(waited, "payload") if waited is not None else None


def _gone_without(validity: Validity, node: str, end: Fact) -> bool:
    """A call that a model asked for and that surely took no effect: nothing of the last plan needs it."""
    history = validity.history
    revision = history.plans.in_force(end.at)
    if not _planned_by_turns(history) or history.plans.node(node, revision).get("kind", "tool") != "tool":
        return False
    failed = (fact.at < end.at and fact.text("result_type") == PERMANENT for fact in history.nodes_finished_of(node))
    return any(failed) and validity.took_nothing(node, end.at) and not history.plans.is_needed(node, revision)


def _planned_by_turns(history: History) -> bool:
    created = history.created.body if history.created is not None else {}
    brief = created.get("brief")
    turns = not isinstance(brief, dict) or cast("dict[str, Any]", brief).get("planning", "agent") == "agent"
    return isinstance(created.get("goal"), str) and turns
