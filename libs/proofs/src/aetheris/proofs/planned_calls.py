"""Calls that bodies plan: which of them count, who may start them first, and when a body may end (docs/guarantees.md).

Asked in log order, of a history whose plan has bodies, and of no other.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from aetheris.proofs.canonical import canonical
from aetheris.proofs.history import SUCCESSES, History
from aetheris.proofs.phases import Phase, Planned, Settlement, is_number
from aetheris.proofs.plans import entry_hash
from aetheris.proofs.records import Body, Fact
from aetheris.proofs.value_references import by_meaning, targets

MOST_CALLS = 10_000
"""Of one body."""
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_NO_NAME = re.compile(r"[^A-Za-z0-9_.-]")
_HEX = re.compile(r"[0-9a-f]{64}")
_KINDS = frozenset({"tool", "llm", "human", "wait", "timer", "time", "random"})
_FIELDS = frozenset(
    {
        *("id", "kind", "tool", "args", "depends_on", "retry", "compensate_with", "compensates", "occurrence"),
        *("irreversible", "timeout_s", "wait", "form"),
    }
)
_OWN_TOOLS = frozenset({"jobs.start", "jobs.continue", "local.read", "local.act"})
"""Those whose calls the system makes of a body's own words: they refer to nothing."""
_OWN = frozenset({"executor", "late", "catch_up"})


class JudgedStarts(Protocol):
    """What is asked of the judged starts of a history."""

    history: History

    def phase(self, key: str, at: int) -> Phase: ...
    def settlement(self, key: str, at: int) -> Settlement | None: ...
    def starts_before(self, key: str, at: int) -> Iterable[Fact]: ...
    def keys_of_node(self, node: str) -> Iterable[str]: ...
    def after_holds(self, start: Fact) -> bool: ...
    def repeats(self, start: Fact) -> bool: ...


@dataclass(slots=True)
class _Running:
    """A body, and what its calls come to at a place in the log."""

    key: str = ""
    invocation_id: str = ""
    expected: int = 0
    has_asked: bool = False
    word: str = ""
    calls: int = 0
    recorded: int = 0
    open: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    waived: dict[str, set[str]] = field(default_factory=dict[str, set[str]])


@dataclass(slots=True)
class _Call:
    """A planned call: whose it is, as what it was asked for, and what starts."""

    parent: str
    by: str
    entry: Body
    hashed: str
    key: str
    args_hash: str
    irreversible: bool
    weight: int

    @property
    def only_reads(self) -> bool:
        """Whether it leaves nothing behind: it may be planned whatever its body has not asked for."""
        return self.weight == 0 and not self.irreversible and self.entry.get("compensate_with") is None


class PlannedCalls:
    """Judges what bodies do, record by record."""

    def __init__(self, judged: JudgedStarts) -> None:
        self._judged = judged
        self._plans = judged.history.plans
        self._running = {name: _Running() for name in self._plans.bodies}
        self._calls: dict[str, _Call] = {}
        self._refused: set[int] = set()
        """Ends of bodies that are none, by place."""
        self._awaited = {_awaited(self._plans.node(name, 0)) for name in self._plans.order(0)} - {""}

    def judged(self) -> Iterator[Fact]:
        """The records that `take` is to be given, beside the starts; in whatever order."""
        history = self._judged.history
        yield from history.calls_planned
        yield from history.workflows_accepted
        for edits in history.edits.values():
            yield from edits
        for closings in history.closings.values():
            yield from (fact for fact in closings if fact.node in self._running)

    def take(self, fact: Fact) -> None:
        """The next of them, in log order."""
        match fact.type:
            case "call_planned":
                self._plan(fact)
            case "workflow_accepted":
                self._accept(fact)
            case "approval_decided":
                self._edit(fact)
            case _:
                if not self._may_end(fact):
                    self._refused.add(fact.at)

    def begin(self, start: Fact, *, is_first: bool) -> None:
        """A start that counts: another body runs, or a call of one is recorded."""
        body, call = self._running.get(start.node), self._calls.get(start.node)
        if body is not None:
            body.open = [one for one in body.open if not self._is_settled(body, *one, start.at)]
            code = start.body.get("code")
            names = (
                body.waived.get(str(cast("Body", code).get("hash")), set()) if isinstance(code, dict) else set[str]()
            )
            waived = sum(self._calls[name].weight for name in names if self._is_recorded(name, start.at))
            body.key, body.invocation_id, body.word = start.key, start.invocation_id, start.text("plans")
            body.expected, body.has_asked = body.recorded - waived, False
        elif call is not None and is_first:
            of = self._running[call.parent]
            of.recorded += call.weight
            of.open.append((start.key, call.weight))

    def broken(self, start: Fact, planned: Planned) -> Iterator[str]:
        """What keeps a planned call from starting here, by rule."""
        call = self._calls.get(start.node)
        if call is None:
            return
        named = (start.key, start.text("args_hash"), start.text("tool_name"), start.body.get("occurrence", 1))
        tool, occurrence = call.entry.get("tool") or call.entry.get("kind", "tool"), call.entry.get("occurrence", 1)
        if named != (call.key, call.args_hash, tool, occurrence):
            yield "other_call"
        if not any(True for _ in self._judged.starts_before(start.key, start.at)):
            body = self._running[call.parent]
            is_its = start.body.get("parent_invocation") == call.by == body.invocation_id != ""
            if not is_its or self._judged.phase(body.key, start.at) not in (Phase.STARTED, Phase.REOPENED):
                yield "not_its_body"
        if planned.irreversible and occurrence != 1 and not self._judged.repeats(start):
            yield "repeated"

    def workflow_of(self, node: str) -> object:
        """The workflow whose body has planned a call: where it is frozen, the call doesn't start either."""
        call = self._calls.get(node)
        return self._plans.node(call.parent, 0).get("tool") if call is not None else None

    def may_settle(self, fact: Fact) -> bool:
        """Whether nothing that is asked of bodies keeps a record from settling its key."""
        return fact.at not in self._refused

    def _in_charge(self, parent: str, invocation_id: object, at: int) -> _Running | None:
        body = self._running.get(parent)
        if body is None or not body.key or body.invocation_id != invocation_id:
            return None
        return body if self._judged.phase(body.key, at) is Phase.STARTED else None

    def _plan(self, fact: Fact) -> None:
        parent = fact.text("parent")
        body = self._in_charge(parent, fact.body.get("invocation_id"), fact.at)
        if body is None or not _follows(body.word, fact.body.get("word")):
            return
        body.word = fact.text("word")
        history = self._judged.history
        over = history.end is not None and history.end.at < fact.at
        if over or any(stop.at < fact.at for stop in history.stops):
            return
        if not self._judged.after_holds(fact):
            return
        asked, call = self._has_asked(body, fact), self._call(fact, parent)
        if call is None or not (asked or call.only_reads) or not self._takes(fact, call, body):
            return
        body.has_asked = asked

    def _takes(self, fact: Fact, call: _Call, body: _Running) -> bool:
        known = self._calls.get(fact.node)
        if known is None:
            if body.calls >= MOST_CALLS or self._plans.knows(fact.node) or not self._is_free(call.entry, ""):
                return False
            body.calls += 1
        elif known.parent != call.parent or self._has_begun(fact.node, known, fact.at):
            return False
        elif known.hashed == call.hashed:
            known.by = call.by
            return True
        elif self._is_decided(fact.node, fact.at) or not self._is_free(call.entry, _awaited(known.entry)):
            return False
        else:
            self._awaited.discard(_awaited(known.entry))
        self._awaited |= {_awaited(call.entry)} - {""}
        self._calls[fact.node] = call
        self._plans.plan_call(fact.node, call.entry)
        return True

    def _call(self, fact: Fact, parent: str) -> _Call | None:
        """What a record plans; None where it could stand in no plan, or is not what it is called."""
        entry = _mapping(fact.body.get("entry"))
        args, name, kind = entry.get("args", {}), fact.node, entry.get("kind", "tool")
        if not _FIELDS.issuperset(entry) or kind not in _KINDS or entry.get("id") != name or not _NAME.fullmatch(name):
            return None
        if name.endswith(".undo") or entry.get("compensates") is not None or entry.get("depends_on"):
            return None
        if _mapping(entry.get("wait")).get("personal") is not None:
            return None
        tool, occurrence = entry.get("tool"), entry.get("occurrence", 1)
        if (kind == "tool") != isinstance(tool, str) or type(occurrence) is not int or occurrence < 1:
            return None
        undo = entry.get("compensate_with")
        called = [tool, *([_mapping(undo).get("tool")] if undo is not None else [])]
        if not isinstance(args, dict) or not self._are_pinned(one for one in called if one):
            return None
        uses = str(tool or kind)
        try:
            given = canonical(args) if args else b""
            meant = given and canonical(by_meaning(args))
        except (ValueError, RecursionError):
            return None
        if not name.startswith(f"{parent}.") and name != _id(parent, uses, meant, occurrence):
            return None
        made = self._made(fact, parent, entry, given)
        if made is None:
            return None
        pinned = self._plans.tool(uses, 0) if kind == "tool" else {}
        has_effect = kind == "tool" and pinned.get("effect_class") != "pure"
        return _Call(
            parent,
            fact.invocation_id,
            entry,
            entry_hash(entry),
            *made,
            pinned.get("irreversible") is True or entry.get("irreversible") is True,
            int.from_bytes(hashlib.sha256(name.encode()).digest()) if has_effect else 0,
        )

    def _made(self, fact: Fact, parent: str, entry: Body, given: bytes) -> tuple[str, str] | None:
        """(key, hash of the arguments) of what a record plans; None where it may not be given what it refers to.

        With results they are as said, and held against these where the call starts (`recomputed_calls`).
        """
        tool, kind = entry.get("tool"), entry.get("kind", "tool")
        said = (fact.body.get("call_key"), fact.body.get("args_hash"))
        used = {target.partition("#")[0] for target in targets(entry.get("args", {}))}
        if not used:
            named = f"{fact.job}\0{fact.node}\0{tool or kind}\0".encode(errors="surrogatepass")
            return (_digest(named + given), _digest(given)) if said == (None, None) else None
        if kind not in ("tool", "llm") or tool in _OWN_TOOLS or not all(map(_is_digest, said)):
            return None
        well = all(name in self._plans.adopted or self._has_succeeded(name, parent, fact.at) for name in used)
        return cast("tuple[str, str]", said) if well else None

    def _has_succeeded(self, name: str, parent: str, at: int) -> bool:
        """Whether it is a call of the same body, that has."""
        call = self._calls.get(name)
        if call is None or call.parent != parent:
            return False
        ends = (self._judged.settlement(key, at) for key in self._judged.keys_of_node(name))
        waited = self._judged.history.wait_end(name, at) is not None
        return waited or any(end is not None and end.succeeded for end in ends)

    def _are_pinned(self, tools: Iterable[object]) -> bool:
        return all(isinstance(tool, str) and self._plans.tool(tool, 0) for tool in tools)

    def _is_free(self, entry: Body, own: str) -> bool:
        if entry.get("compensate_with") is not None and self._plans.knows(f"{entry.get('id')}.undo"):
            return False
        return _awaited(entry) in {"", own} or _awaited(entry) not in self._awaited

    def _has_begun(self, node: str, call: _Call, at: int) -> bool:
        started = any(True for _ in self._judged.keys_of_node(node))
        waited = self._judged.history.wait_end(node, at) is not None
        return started or waited or self._judged.settlement(call.key, at) is not None

    def _is_decided(self, node: str, at: int) -> bool:
        history = self._judged.history
        said = {fact.key: self._decision(fact.key) for fact in history.decided_nodes.get(node, ()) if fact.at < at}
        waits = (fact for fact in history.waits.get(node, ()) if fact.at < at and fact.type == "job_waiting")
        return any(fact is not None and fact.text("decision") != "reject" for fact in said.values()) or any(waits)

    def _decision(self, key: str) -> Fact | None:
        """The one that stands about a call that has not started."""
        tokens = ((fact, fact.body.get("token", 1)) for fact in self._judged.history.decisions.get(key, ()))
        return next((fact for fact, token in tokens if token is None or is_number(token, 1)), None)

    def _accept(self, fact: Fact) -> None:
        body, waives = self._running.get(fact.node), fact.body.get("waives")
        if body is None or body.key != fact.key or body.invocation_id != fact.invocation_id:
            return
        if self._judged.phase(body.key, fact.at) is not Phase.PARKED or not isinstance(waives, list):
            return
        named = {str(name) for name in cast("list[object]", waives)}
        held = {name for name in named if self._is_recorded(name, fact.at) and self._calls[name].parent == fact.node}
        body.waived.setdefault(fact.text("code_hash"), set()).update(held)

    def _edit(self, fact: Fact) -> None:
        """A call that has not begun is made with what a human says."""
        call, args = self._calls.get(fact.node), fact.body.get("data")
        if (
            call is None
            or call.key != fact.key
            or self._decision(fact.key) is not fact
            or self._has_begun(fact.node, call, fact.at)
        ):
            return
        if not isinstance(args, dict) or any(targets(args)):
            return
        try:
            given = canonical(args) if args else b""
        except (ValueError, RecursionError):
            return
        uses = str(call.entry.get("tool") or call.entry.get("kind", "tool"))
        call.key = _digest(f"{fact.job}\0{fact.node}\0{uses}\0".encode(errors="surrogatepass") + given)
        call.args_hash = _digest(given)

    def _may_end(self, fact: Fact) -> bool:
        body = self._running[fact.node]
        while body.open and self._is_settled(body, *body.open[-1], fact.at):
            body.open.pop()
        if body.open:
            return False
        if fact.type == "invocation_rejected" or fact.text("via") not in _OWN:
            return True
        if fact.outcome not in SUCCESSES and fact.outcome != "permanent_failure":
            return True
        in_charge = self._in_charge(fact.node, fact.body.get("invocation_id"), fact.at)
        return in_charge is not None and self._has_asked(in_charge, fact)

    def _has_asked(self, body: _Running, fact: Fact) -> bool:
        return body.has_asked or fact.body.get("frontier") == f"{body.expected % 2**256:064x}"

    def _is_settled(self, body: _Running, key: str, weight: int, at: int) -> bool:
        settled = self._judged.settlement(key, at)
        if settled is None:
            return False
        if not settled.succeeded and settled.sure:
            body.recorded -= weight
        return True

    def _is_recorded(self, name: str, at: int) -> bool:
        if name not in self._calls or self._calls[name].weight == 0:
            return False
        ends = (self._judged.settlement(key, at) for key in self._judged.keys_of_node(name))
        return any(end is None or end.succeeded or not end.sure for end in ends)


def _follows(before: str, word: object) -> bool:
    """Whether a word is the preimage of the one before."""
    if not isinstance(word, str) or not _HEX.fullmatch(word):
        return False
    return hashlib.sha256(b"call1\x00" + bytes.fromhex(word)).hexdigest() == before


def _is_digest(said: object) -> bool:
    return isinstance(said, str) and _HEX.fullmatch(said) is not None


def _id(parent: str, tool: str, meant: bytes, occurrence: int) -> str:
    named = _digest(f"{parent}\0{tool}\0".encode(errors="surrogatepass") + meant)
    return f"{_NO_NAME.sub('-', tool[:30])}.{named[:16]}.{occurrence}"


def _awaited(entry: Body) -> str:
    key = _mapping(entry.get("wait")).get("key")
    return key if isinstance(key, str) else ""


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Body", value) if isinstance(value, dict) else {}
