"""Which records count: the rules of docs/guarantees.md as predicates over positions in a history.

Nothing here is folded. With S the valid starts of a key before a position:

- its phase follows from the last of S: reopened if a record has handed it over, parked if one has parked it;
- its token is |S|, plus one where it is open, since only what was handed over starts again;
- a try is live if its start is in S and nothing has since proved that it took no effect;
- its attempt is how many of S ended in such a proof while no other try was live.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

from aetheris.proofs.frozen_calls import FrozenCalls
from aetheris.proofs.history import PERMANENT, SUCCESSES, History, any_between, first_after
from aetheris.proofs.phases import (
    OPEN,
    ApprovalToken,
    Handover,
    Phase,
    Planned,
    Settlement,
    is_number,
    pause_steps,
    token_of,
)
from aetheris.proofs.planned_calls import PlannedCalls
from aetheris.proofs.plans import entries_of, is_declared
from aetheris.proofs.records import Body, Fact

OVERRULED_BY_YES = frozenset({"approval", "edited", "expired"})


class Validity:
    """The judged starts of a history and what follows from them. Every question names a position.

    Starts are judged in log order, and each judgement looks only at what lies before it.
    """

    def __init__(self, history: History) -> None:
        self.history = history
        self.reasons: dict[int, tuple[str, ...]] = {}
        self._planned: dict[int, Planned] = {}
        self.valid: dict[str, list[Fact]] = defaultdict(list)
        self.valid_by_invocation: dict[str, list[Fact]] = defaultdict(list)
        self._keys_of_node: dict[str, dict[str, None]] = defaultdict(dict)
        self._keys_of_content: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
        self._handovers: dict[int, Handover | None] = {}
        self._settlements: dict[str, Settlement] = {}
        self._refuted: dict[str, int] = {}
        self._void: set[tuple[str, str, str]] = set()
        self._pauses = pause_steps(history.pauses) if any(one.type == "job_paused" for one in history.pauses) else []
        self._frozen = FrozenCalls(history) if any(one.type == "job_frozen" for one in history.freezes) else None
        self._calls = PlannedCalls(self) if history.plans.bodies else None
        of_bodies = self._calls.judged() if self._calls is not None else ()
        judged = [*history.starts, *history.late_plans, *of_bodies]
        for fact in sorted(judged, key=lambda fact: fact.at) if len(judged) > len(history.starts) else judged:
            if fact.type == "tool_invocation_started":
                self._judge(fact)
            elif fact.type == "plan_generated":
                self._admit(fact)
            elif self._calls is not None:
                self._calls.take(fact)

    def void_reasons(self, start: Fact) -> tuple[str, ...]:
        """Why a started record is void, by rule; empty for a valid one."""
        return self.reasons[start.at]

    def is_valid(self, start: Fact) -> bool:
        """Does a started record count?"""
        return not self.reasons[start.at]

    def planned(self, start: Fact) -> Planned:
        """What the plan in force at a started record's place says of its node."""
        return self._planned[start.at]

    def starts_before(self, key: str, at: int) -> Sequence[Fact]:
        """The valid starts of a key before a position."""
        starts = self.valid.get(key)
        if not starts:
            return ()
        return starts if starts[-1].at < at else starts[: bisect_left(starts, at, key=lambda start: start.at)]

    def live(self, key: str, at: int) -> set[str]:
        """The invocations of valid starts that nothing has proved unexecuted."""
        retries = self.history.retries
        return {
            start.invocation_id
            for start in self.starts_before(key, at)
            if not (retries and any_between(retries.get((key, start.invocation_id), ()), start.at, at))
        }

    def handover(self, start: Fact) -> Handover | None:
        """The first record that gave a valid start's tenure up."""
        if start.at not in self._handovers:
            self._handovers[start.at] = self._find_handover(start)
        return self._handovers[start.at]

    def phase(self, key: str, at: int) -> Phase:
        """Where a key stands just before a position."""
        if self.settlement(key, at) is not None:
            return Phase.SETTLED
        return self._unsettled_phase(key, at)

    def token(self, key: str, at: int) -> int:
        """The generation that may start next, or that runs."""
        return len(self.starts_before(key, at)) + (self._unsettled_phase(key, at) in OPEN)

    def external_attempt(self, key: str, at: int) -> int:
        """The external attempt, from 0."""
        ends = [self.handover(start) for start in self.starts_before(key, at)]
        return len([end for end in ends if end is not None and end.proved and end.at < at])

    def settlement(self, key: str, at: int) -> Settlement | None:
        """The first record before a position that settles a key."""
        found = self._settlements.get(key)
        if found is None:
            return self._find_settlement(key, at)
        return found if found.fact.at < at else None

    def final(self, key: str) -> Settlement | None:
        """What a key is settled as in the whole history."""
        return self._settlements.get(key) or self._find_settlement(key, len(self.history.facts))

    def started_keys(self) -> list[str]:
        """The keys with a valid start, in log order of the first."""
        return [key for key, starts in self.valid.items() if starts]

    def keys_of_node(self, node: str) -> Iterable[str]:
        """The keys of a node with a valid start."""
        return self._keys_of_node.get(node, ())

    def took_nothing(self, node: str, at: int) -> bool:
        """Whether every call of a node that started was settled before a position, surely without an effect."""
        settled = [(key, self.settlement(key, at)) for key in self.keys_of_node(node)]
        return not any(end is None or end.succeeded or self._unsure(key, end, at) for key, end in settled)

    def _admit(self, plan: Fact) -> None:
        """Behind a stop, only a plan that undoes what was done, and only that, comes in force."""
        if self._may_compensate(plan.at) and all(self._undoes(entry, plan.at) for entry in entries_of(plan)):
            self.history.plans.add(plan)

    def _may_compensate(self, at: int) -> bool:
        """Stopped, not ended, nothing open; and a human said so, or nothing may have taken effect unseen."""
        history = self.history
        if not any(stop.at < at for stop in history.stops) or (history.end is not None and history.end.at < at):
            return False
        settled = {key: self.settlement(key, at) for key in self.started_keys() if self.starts_before(key, at)}
        if None in settled.values():
            return False
        if history.cancel is not None and history.cancel.at < at:
            return history.cancel.body.get("compensate") is True
        return not any(self._unsure(key, end, at) for key, end in settled.items() if end is not None)

    def _unsure(self, key: str, settled: Settlement, at: int) -> bool:
        if settled.succeeded or settled.sure:
            return False
        plans = self.history.plans
        start = self.valid[key][0]
        is_tool = plans.node(start.node, plans.in_force(at)).get("kind", "tool") == "tool"
        return is_tool and plans.tool_of(start.node, plans.in_force(at)).get("effect_class") != "pure"

    def _undoes(self, entry: Body, at: int) -> bool:
        """A new node that is what a node declares that has settled as a success."""
        plans = self.history.plans
        revision, undone = plans.in_force(at), str(entry.get("compensates"))
        if plans.node(str(entry.get("id")), revision) or not is_declared(entry, plans.node(undone, revision)):
            return False
        ends = (self.settlement(key, at) for key in self.keys_of_node(undone))
        return any(end is not None and end.succeeded for end in ends)

    def _judge(self, start: Fact) -> None:
        plans = self.history.plans
        revision = plans.in_force(start.at)
        planned = Planned(revision, plans.node(start.node, revision), plans.tool_of(start.node, revision))
        self._planned[start.at] = planned
        irreversible = planned.irreversible
        reasons = self.reasons[start.at] = tuple(self._broken(start, planned))
        if reasons:
            self._void.add(_invocation(start))
            return
        if self._calls is not None:
            self._calls.begin(start, is_first=not self.valid[start.key])
        self.valid[start.key].append(start)
        self.valid_by_invocation[start.invocation_id].append(start)
        self._keys_of_node[start.node][start.key] = None
        if irreversible:
            self._keys_of_content[_content(start)][start.key] = None

    def _broken(self, start: Fact, planned: Planned) -> Iterator[str]:
        key, at, body = start.key, start.at, start.body
        earlier, irreversible = self.starts_before(key, at), planned.irreversible
        is_open = not earlier or self._unsettled_phase(key, at) in OPEN
        attempt = self.external_attempt(key, at) if earlier else 0
        if not (key and start.invocation_id and start.node):
            yield "unnamed"
        if self._void and _invocation(start) in self._void:
            yield "void_before"
        if self.settlement(key, at) is not None:
            yield "settled"
        if not is_open:
            yield "not_open"
        if not is_number(body.get("token"), len(earlier) + is_open):
            yield "token"
        if not self._plan_in_force(start, planned):
            yield "plan"
        if self.history.stops and self._stopped(start, planned):
            yield "stopped"
        if self._pauses and self._paused(at):
            yield "paused"
        if self._frozen is not None and self._frozen.hold(
            (planned.entry.get("tool"), self._calls and self._calls.workflow_of(start.node)), at
        ):
            yield "frozen"
        if self.history.end is not None and self.history.end.at < at:
            yield "ended"
        gone = self.history.workers_ended
        if gone and start.worker is not None and gone.get(start.worker, at) < at:
            yield "worker_ended"
        if self.history.decisions and self._decision(key, at) not in (None, "approve"):
            yield "refused"
        if self._node_taken(start):
            yield "node_guard"
        if not is_number(body.get("attempt_id"), attempt):
            yield "attempt"
        if body.get("external_key") != f"aetheris:{start.job}:{start.node}:{attempt}":
            yield "external_key"
        if not self.after_holds(start):
            yield "after"
        asking = self.askings(key, at)[-1] if earlier else ApprovalToken()
        if self.history.requests and self._unanswered(start, asking):
            yield "unanswered"
        if (irreversible or asking.token > 1) and not self._approved(start, asking):
            yield "not_approved"
        if irreversible and self._content_taken(start):
            yield "content_guard"
        if self._calls is not None:
            yield from self._calls.broken(start, planned)

    def _paused(self, at: int) -> bool:
        before = bisect_left(self._pauses, at, key=lambda step: step[0])
        return before > 0 and self._pauses[before - 1][1]

    def _find_handover(self, start: Fact) -> Handover | None:
        named = (start.key, start.invocation_id)
        if named not in self.history.retries and named not in self.history.reopens:
            return None
        retry = first_after(self.history.retries.get(named, []), start.at)
        given_up = (one.at for one in self.history.reopens.get(named, []) if self._gives_up(start, one))
        reopened = next(given_up, None)
        if retry is not None and (reopened is None or retry < reopened):
            return Handover(retry, not self.live(start.key, retry + 1))
        if reopened is None:
            return None
        return Handover(reopened, proved=False, by_hand=self.history.facts[reopened].text("by") == "human")

    def _gives_up(self, start: Fact, reopened: Fact) -> bool:
        """A person reopens what is parked; others what isn't, or by a probe once the try can act no more."""
        if reopened.at <= start.at:
            return False
        parked = first_after(self.history.parks.get((start.key, start.invocation_id), []), start.at)
        if parked is None or parked > reopened.at:
            return reopened.text("by") != "human"
        ended = self.end_of(start) if reopened.text("by") == "probe" else None
        return reopened.text("by") == "human" or (ended is not None and ended < reopened.at)

    def end_of(self, start: Fact) -> int | None:
        """Where it is recorded first that a try can act no more: its worker has ended, or its own code has raised."""
        ended = self.history.gone.get(start.worker) if start.worker is not None else None
        returned = [at for at in self.history.returns.get((start.key, start.invocation_id), ()) if at > start.at]
        return min((at for at in (ended, *returned) if at is not None), default=None)

    def _unsettled_phase(self, key: str, at: int) -> Phase:
        starts = self.starts_before(key, at)
        if not starts:
            return Phase.NONE
        last = starts[-1]
        end = self.handover(last)
        if end is not None and end.at < at:
            return Phase.REOPENED
        parks = self.history.parks.get((key, last.invocation_id), ())
        return Phase.PARKED if any_between(parks, last.at, at) else Phase.STARTED

    def _find_settlement(self, key: str, at: int) -> Settlement | None:
        """Candidates before `at`, each judged once: what it depends on lies before it and doesn't change."""
        candidates = self.history.closings.get(key)
        if not candidates or candidates[0].at >= at:
            return None
        for index in range(self._refuted.get(key, 0), len(candidates)):
            if candidates[index].at >= at:
                return None
            settled = self._settles(candidates[index])
            if settled is not None:
                self._settlements[key] = settled
                return settled
            self._refuted[key] = index + 1
        return None

    def may_settle(self, fact: Fact) -> bool:
        """Whether nothing that is asked of bodies keeps a record from settling its key."""
        return self._calls is None or self._calls.may_settle(fact)

    def _settles(self, fact: Fact) -> Settlement | None:
        if not self.may_settle(fact):
            return None
        live = self.live(fact.key, fact.at)
        if fact.type == "invocation_rejected":
            return self._rejects(fact, live)
        if fact.outcome in SUCCESSES:
            return Settlement(fact, "success", sure=False) if fact.invocation_id in live else None
        return self._fails(fact, live) if fact.outcome == PERMANENT else None

    def _rejects(self, fact: Fact, live: set[str]) -> Settlement | None:
        overruled = fact.text("reason") in OVERRULED_BY_YES and self._decision(fact.key, fact.at) == "approve"
        ended = self.history.wait_end(fact.node, fact.at)
        answered = ended is not None and ended.key == fact.key
        if overruled or answered or self._unsettled_phase(fact.key, fact.at) not in OPEN:
            return None
        return Settlement(fact, "rejected", sure=not live)

    def _fails(self, fact: Fact, live: set[str]) -> Settlement | None:
        starts = self.starts_before(fact.key, fact.at)
        if not starts or starts[-1].invocation_id != fact.invocation_id:
            return None
        phase = self._unsettled_phase(fact.key, fact.at)
        own = (fact.invocation_id in live, live == {fact.invocation_id})
        holds, sure = {
            "executor": own,
            "late": own,
            "ledger": (phase in (Phase.STARTED, Phase.REOPENED), phase is Phase.REOPENED and not live),
            "human": (phase is Phase.PARKED, False),
        }.get(fact.text("via"), (False, False))
        return Settlement(fact, "failed", sure) if holds else None

    def _plan_in_force(self, start: Fact, planned: Planned) -> bool:
        named = start.body.get("revision")
        if not isinstance(named, int) or isinstance(named, bool):
            return False
        if named == planned.revision:
            return bool(planned.entry)
        return self.history.plans.same_entry(start.node, named, planned.revision)

    def _stopped(self, start: Fact, planned: Planned) -> bool:
        """By the entry in force, whichever revision the record names: only compensations start behind a stop."""
        plans, revision = self.history.plans, planned.revision
        undoes, since = plans.compensates(start.node, revision), plans.since(start.node, revision)
        stops = (stop for stop in self.history.stops if stop.at < start.at)
        return any(not undoes or _covers(stop, since) for stop in stops)

    def parked(self, key: str, at: int) -> Fact | None:
        """What parked the try that was the last to start before a position."""
        starts = self.starts_before(key, at)
        if not starts:
            return None
        place = first_after(self.history.parks.get((key, starts[-1].invocation_id), ()), starts[-1].at)
        end = self.handover(starts[-1])
        if place is None or place >= at or (end is not None and end.at < place):
            return None
        return self.history.facts[place]

    def askings(self, key: str, at: int) -> list[ApprovalToken]:
        """What approvals of a key had to carry before a position: at first, and since each retry by hand."""
        found = [ApprovalToken()]
        for token, start in enumerate(self.starts_before(key, at), start=2):
            end = self.handover(start)
            if end is None or not end.by_hand or end.at >= at or self.settlement(key, end.at) is not None:
                continue
            if self.is_irreversible(start.node, end.at) or self.request(key, found[-1], end.at) is not None:
                found.append(ApprovalToken(token, end.at))
        return found

    def request(self, key: str, asking: ApprovalToken, at: int) -> Fact | None:
        """The request for approval that counts, before a position: what had started by then was not asked about."""
        asked = _first_within(self.history.requests.get(key, ()), asking, at)
        if asked is None or len(self.starts_before(key, asked.at)) != asking.token - 1:
            return None
        return asked if self.settlement(key, asked.at) is None else None

    def allowance(self, start: Fact, asking: ApprovalToken) -> Fact | None:
        """The policy's own word that let a key start, in the version of this start: behind the first try it is none."""
        if asking.token != 1:
            return None
        version = start.body.get("tool_version")
        said = (one for one in self.history.allowances.get(start.key, ()) if one.body.get("tool_version") == version)
        first = next(said, None)
        if first is None or first.at > start.at or self.starts_before(start.key, first.at):
            return None
        return first

    def named(self, key: str, at: int) -> Body:
        """Whom the log names, before a position, to say what became of a call that has started.

        Its request for approval does; else what the policy said before it started; else nobody is named, so that
        anybody may but who submitted the job, and where it can't be undone any person.
        """
        starts = self.starts_before(key, at)
        asking = self.askings(key, at)[-1]
        asked = self.request(key, asking, at)
        if asked is None and starts:
            asked = self.allowance(starts[-1], asking)
        if asked is not None:
            return asked.body
        irreversible = bool(starts) and self.planned(starts[-1]).irreversible
        return {"approver_kinds": ["person"]} if irreversible else {}

    def decision(self, key: str, asking: ApprovalToken, at: int) -> Fact | None:
        """The decision that counts, before a position."""
        return _first_within(self.history.decisions.get(key, ()), asking, at)

    def _decision(self, key: str, at: int) -> str | None:
        decided = self.decision(key, self.askings(key, at)[-1], at) if key in self.history.decisions else None
        return decided.text("decision") if decided is not None else None

    def is_irreversible(self, node: str, at: int) -> bool:
        """Whether the plan in force at a position has a node as what can't be undone."""
        plans = self.history.plans
        revision = plans.in_force(at)
        return Planned(revision, plans.node(node, revision), plans.tool_of(node, revision)).irreversible

    def _node_taken(self, start: Fact) -> bool:
        started = self._keys_of_node.get(start.node)
        if not started:
            return False
        return any(self._blocks_node(key, start.at) for key in started if key != start.key)

    def _blocks_node(self, key: str, at: int) -> bool:
        settled = self.settlement(key, at)
        return settled is None or not (settled.outcome == "rejected" and settled.sure)

    def _content_taken(self, start: Fact) -> bool:
        others = (key for key in self._keys_of_content.get(_content(start), {}) if key != start.key)
        return any(self._blocks_content(key, start.at) for key in others)

    def _blocks_content(self, key: str, at: int) -> bool:
        settled = self.settlement(key, at)
        return settled is None or settled.succeeded or not settled.sure

    def after_holds(self, start: Fact) -> bool:
        """Whether what a record says that it builds on has settled just so."""
        named = start.body.get("after")
        if named is None:
            return True
        return isinstance(named, list) and all(self._settled_by(item, start.at) for item in cast("list[Any]", named))

    def _settled_by(self, item: Any, at: int) -> bool:
        """Exactly that invocation settled its key as success, with exactly that result."""
        named: Body = item if type(item) is dict else {}
        invocation_id, result_hash = named.get("invocation_id"), named.get("result_hash")
        for start in self.valid_by_invocation.get(invocation_id, []) if isinstance(invocation_id, str) else ():
            settled = self.settlement(start.key, at)
            if settled is not None and settled.succeeded and settled.fact.invocation_id == invocation_id:
                return bool(result_hash) and settled.fact.body.get("output_hash") == result_hash
        return False

    def _approved(self, start: Fact, asking: ApprovalToken) -> bool:
        """By policy for this version, or by the first decision, if it is a yes to this version and these arguments.

        What a human retries, only by a decision about that retry.
        """
        return self.allowance(start, asking) is not None or self._said_yes(start, asking)

    def repeats(self, start: Fact) -> bool:
        """Whether a body may make an irreversible call again: a rule lets it, or a human has said yes to just this."""
        asking = self.askings(start.key, start.at)[-1]
        said = self.allowance(start, asking)
        return (said is not None and said.body.get("repeats") == "allow") or self._said_yes(start, asking)

    def _unanswered(self, start: Fact, asking: ApprovalToken) -> bool:
        """Whether a human was asked about the call, and has not said yes to just this."""
        return self.request(start.key, asking, start.at) is not None and not self._said_yes(start, asking)

    def _said_yes(self, start: Fact, asking: ApprovalToken) -> bool:
        decided = self.decision(start.key, asking, start.at)
        if decided is None or decided.text("decision") != "approve":
            return False
        same_version = decided.body.get("tool_version") == start.body.get("tool_version")
        return same_version and decided.text("args_hash") == start.text("args_hash")


def _covers(stop: Fact, since: int) -> bool:
    up_to = stop.body.get("up_to_revision")
    return not isinstance(up_to, int) or since <= up_to


def _invocation(start: Fact) -> tuple[str, str, str]:
    """What a repeat of a record has in common with it."""
    return start.key, start.invocation_id, repr(start.body.get("token"))


def _content(start: Fact) -> tuple[str, str]:
    return start.text("content_key"), str(start.body.get("occurrence", 1))


def _first_within(facts: Iterable[Fact], asking: ApprovalToken, at: int) -> Fact | None:
    """The first one that carries the token, where it was asked for and before a position."""
    return next(
        (fact for fact in facts if asking.since < fact.at < at and is_number(token_of(fact), asking.token)), None
    )
