"""The plan revisions of a history: what each node's entry was at any place in the log."""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence, Set
from heapq import heapify, heappop, heappush
from typing import Any, cast

from aetheris.proofs.canonical import hash_or_empty
from aetheris.proofs.records import Body, Fact
from aetheris.proofs.value_references import targets

_DEFAULTS: dict[str, Any] = {"kind": "tool", "args": {}, "depends_on": [], "occurrence": 1, "irreversible": False}


class Plans:
    """The first plan of each revision; revisions follow each other without a gap. What is no plan changes nothing."""

    def __init__(self) -> None:
        self._places: list[int] = []
        self._nodes: dict[str, list[tuple[int, Body]]] = {}
        self._tools: dict[str, list[tuple[int, Body]]] = {}
        self._needs: dict[str, set[str]] = {}
        self._orders: dict[int, list[str]] = {}
        self.adopted: frozenset[str] = frozenset()
        """The steps of earlier jobs that it may refer to: JOB/NODE."""
        self.effective: set[int] = set()
        self.bodies: frozenset[str] = frozenset()
        """The nodes that plan calls themselves; such stand in the first plan."""
        self._calls: set[str] = set()
        self._has_undoing = False

    def add(self, fact: Fact) -> None:
        """Take a plan_generated; a repeated revision, a gap, or what is no plan changes nothing."""
        revision = fact.body.get("revision")
        if not isinstance(revision, int) or isinstance(revision, bool) or revision != len(self._places):
            return
        part = _mapping(fact.body.get("task_graph" if revision == 0 else "diff"))
        entries = entries_of(fact)
        after = [_dependencies(entry) for entry in entries]
        added = {_text(entry, "id"): one | _referred(entry) for entry, one in zip(entries, after, strict=True)}
        if not self._is_pinned(entries, self._tools.keys() | _mapping(part.get("tools")).keys()):
            return
        order = self._graph(after, added)
        if order is None:
            return
        bodies = [entry for entry in entries if entry.get("kind") == "workflow"]
        said = fact.body.get("bodies") is True
        if (bodies or said) and not (said and self._may_have(bodies, _mapping(part.get("tools")))):
            return
        self.bodies |= {_text(entry, "id") for entry in bodies}
        self._needs |= added
        for entry in entries:
            self._nodes.setdefault(str(entry.get("id")), []).append((revision, entry))
            self._has_undoing = self._has_undoing or "compensates" in entry
        for name, entry in _mapping(part.get("tools")).items():
            self._tools.setdefault(name, []).append((revision, _mapping(entry)))
        self._places.append(fact.at)
        self._orders.clear()
        if revision == 0 and all(one == needs for one, needs in zip(after, added.values(), strict=True)):
            self._orders[0] = order  # by all needs, which are what it is asked for by
        self.effective.add(fact.at)

    def plan_call(self, name: str, entry: Body) -> None:
        """A body plans a call, or plans it otherwise; it comes after nothing. No revision comes of it."""
        self._nodes[name] = [(0, entry)]
        self._needs[name] = set()
        self._calls.add(name)
        self._orders.clear()

    def knows(self, name: str) -> bool:
        """Whether there is a node of this name."""
        return name in self._nodes

    def is_call(self, name: str) -> bool:
        """Whether a body has planned it."""
        return name in self._calls

    def _may_have(self, bodies: Sequence[Body], tools: Body) -> bool:
        """They stand in the first plan, and do nothing themselves."""
        if self._places or not bodies:
            return False
        pins = [_mapping(tools.get(_text(entry, "tool"))) for entry in bodies]
        harmless = all(pin.get("effect_class") == "pure" and pin.get("irreversible") is not True for pin in pins)
        return harmless and all(entry.get("irreversible") is not True for entry in bodies)

    @staticmethod
    def _is_pinned(entries: Sequence[Body], tools: Set[str]) -> bool:
        """Tools that are pinned?"""
        return all(entry.get("tool") is None or _is_one_of(tools, entry.get("tool")) for entry in entries)

    def _graph(self, after: Sequence[set[str]], added: Mapping[str, set[str]]) -> list[str] | None:
        """The order of what is added, by its needs: ids that stand once, needs that the plan then meets.

        `after`: of each entry, what it says that it comes after. None where one of them is not so, or in a circle.
        """
        if not added or "" in added or len(added) < len(after):
            return None
        planned = {**self._needs, **added}
        if any(not one <= planned.keys() for one in after):
            return None
        if any(needed not in planned and needed not in self.adopted for needs in added.values() for needed in needs):
            return None
        replaces = any(name in self._needs for name in added)
        among: Mapping[str, set[str]] = planned if replaces else added  # what was there needs nothing that is new
        order = _in_order(among)
        return order if len(order) == len(among) else None

    def since(self, node_id: str, revision: int) -> int:
        """The revision that a node's entry in a revision came with; −1 where it has none."""
        return _version(self._nodes.get(node_id, []), revision)[0]

    def compensates(self, node_id: str, revision: int) -> str:
        """The node that a node undoes; empty where it undoes none."""
        return _text(self.node(node_id, revision), "compensates")

    def compensations(self, revision: int) -> list[str]:
        """The nodes of a revision that undo others, in the order of their plans."""
        return [name for name in self._nodes if self.compensates(name, revision)] if self._has_undoing else []

    def is_needed(self, node_id: str, revision: int) -> bool:
        """Does a node of a revision come after another, or use its result?"""
        return any(node_id in _needs(self.node(name, revision)) for name in self._nodes)

    def in_force(self, at: int) -> int:
        """The revision in force just before a place in the log; −1 where there is none."""
        return bisect_left(self._places, at) - 1

    def node(self, node_id: str, revision: int) -> Body:
        """A node's entry in a revision; empty where it has none."""
        return _version(self._nodes.get(node_id, _NOTHING), revision)[1]

    def tool(self, name: str, revision: int) -> Body:
        """A tool's pinned entry in a revision; empty where it has none."""
        return _version(self._tools.get(name, _NOTHING), revision)[1]

    def tool_of(self, node_id: str, revision: int) -> Body:
        """The entry that a node's tool was pinned with; empty for kinds without a tool."""
        since, entry = _version(self._nodes.get(node_id, _NOTHING), revision)
        return self.tool(_text(entry, "tool"), since)

    def same_entry(self, node_id: str, named: int, forced: int) -> bool:
        """Is a node's whole entry (tool, its pin, planned arguments, dependencies) one in both revisions?"""
        old, new = self.node(node_id, named), self.node(node_id, forced)
        if not old or not new or not 0 <= named <= forced:
            return False
        return old is new or (
            entry_hash(old) == entry_hash(new)
            and hash_or_empty(self.tool_of(node_id, named)) == hash_or_empty(self.tool_of(node_id, forced))
        )

    def order(self, revision: int) -> list[str]:
        """The node ids of a revision in topological order: Kahn, ties by the bytes of the id."""
        if revision not in self._orders:
            self._orders[revision] = self._order(revision)
        return self._orders[revision]

    def _order(self, revision: int) -> list[str]:
        entries = {name: self.node(name, revision) for name in self._nodes}
        return _in_order({name: _dependencies(entry) for name, entry in entries.items() if entry})


def adopted_names(continues: object) -> frozenset[str]:
    """What the references of a job call the steps that it has adopted."""
    named = _mappings(_mapping(continues).get("adopted"))
    return frozenset(f"{one.get('job_id')}/{one.get('node_id')}" for one in named)


def is_declared(undo: Body, undone: Body) -> bool:
    """Is one entry just the call that another declares as its compensation?"""
    declared = undone.get("compensate_with")
    if not isinstance(declared, dict):
        return False
    call = cast("Body", declared)
    expected = {
        "id": f"{_text(undone, 'id')}.undo",
        "tool": call.get("tool"),
        "args": call.get("args", {}),
        "occurrence": undone.get("occurrence", 1),
        "compensates": undone.get("id"),
    }
    free = ("depends_on", "retry")
    return entry_hash(expected) == entry_hash({name: value for name, value in undo.items() if name not in free})


def entries_of(fact: Fact) -> list[Body]:
    """The nodes that a plan_generated adds."""
    part = _mapping(fact.body.get("task_graph" if fact.body.get("revision") == 0 else "diff"))
    return _mappings(part.get("nodes"))


def id_bytes(name: str) -> bytes:
    """The bytes by which ids are ordered; total, also for text that has no UTF-8 form."""
    return name.encode(errors="surrogatepass")


def _in_order(needs: Mapping[str, set[str]]) -> list[str]:
    """Of what is named among the rest only; without what comes after itself."""
    followers: dict[str, list[str]] = {name: [] for name in needs}
    open_needs: dict[str, int] = {}
    for name, required in needs.items():
        present = required & needs.keys()
        open_needs[name] = len(present)
        for needed in present:
            followers[needed].append(name)
    return _drain(open_needs, followers)


def _drain(open_needs: dict[str, int], followers: Mapping[str, list[str]]) -> list[str]:
    ready = [(id_bytes(name), name) for name, count in open_needs.items() if count == 0]
    heapify(ready)
    order: list[str] = []
    while ready:
        _, name = heappop(ready)
        order.append(name)
        for follower in followers[name]:
            open_needs[follower] -= 1
            if open_needs[follower] == 0:
                heappush(ready, (id_bytes(follower), follower))
    return order


def _dependencies(entry: Body) -> set[str]:
    listed: Any = entry.get("depends_on")
    return set(map(str, listed)) if type(listed) is list else set()


def _is_one_of(names: Set[str], value: object) -> bool:
    return isinstance(value, str) and value in names


def _needs(entry: Body) -> set[str]:
    return _dependencies(entry) | _referred(entry)


def _referred(entry: Body) -> set[str]:
    args = entry.get("args")
    return {target.partition("#")[0] for target in targets(args)} if args else set()


_NOTHING: Sequence[tuple[int, Body]] = ()


def _version(entries: Sequence[tuple[int, Body]], revision: int) -> tuple[int, Body]:
    if entries and entries[-1][0] <= revision:
        return entries[-1]
    index = bisect_right(entries, revision, key=lambda entry: entry[0])
    return entries[index - 1] if index else (-1, {})


def entry_hash(entry: Body) -> str:
    """Absent and default are one; Python's own equality would take true for 1."""
    return hash_or_empty({**_DEFAULTS, **{name: value for name, value in entry.items() if value is not None}})


def _mapping(value: Any) -> Body:
    return value if type(value) is dict else {}


def _mappings(value: Any) -> list[Body]:
    return [item if type(item) is dict else {} for item in value] if type(value) is list else []


def _text(body: Body, name: str) -> str:
    value = body.get(name)
    return value if isinstance(value, str) else ""
