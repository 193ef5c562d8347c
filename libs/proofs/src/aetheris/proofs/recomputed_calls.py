"""What each call is, computed again: its arguments, keys and hashes, from the plan, the recorded results and the pins.

No word of a record is taken for what another record says already (docs/verification.md, "Identity").
"""

import hashlib
import marshal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

from aetheris.proofs.begun import is_of_its_call
from aetheris.proofs.canonical import canonical, hash_or_empty
from aetheris.proofs.compensation import succeeded
from aetheris.proofs.execution import LoadBlob, UnreadableResult, read_result
from aetheris.proofs.history import SUCCESSES
from aetheris.proofs.records import Body, Fact, Violation, fact_of, violation
from aetheris.proofs.validity import Validity
from aetheris.proofs.value_references import NoSuchPlace, by_meaning, is_blob, pointed, targets, with_values

SHOWN_BYTES, SHOWN_DEPTH = 64 * 1024, 64
"""Arguments up to so much stand in a form as they are; of others, what names each."""
_WITHOUT_REFERENCES = 2
"""The version of marshal in which equal values have equal bytes."""
_NONE: frozenset[str] = frozenset()
SHORT_BYTES, BEGINNING, MOST_SHOWN = 1_000, 900, 30


@dataclass(slots=True)  # not frozen, though never changed: that makes the making of each dear
class RecomputedCall:
    """A call as its plan and what precedes it make it."""

    args: Mapping[str, Any]
    args_hash: str
    key: str
    content_key: str


class RecomputedCalls:
    """Calls of a history, each computed once however often it is tried."""

    def __init__(self, validity: Validity, load: LoadBlob | None = None) -> None:
        self._validity = validity
        self._load = load
        created = validity.history.created
        self._created: Body = created.body if created is not None else {}
        self._adopted = _adopted(self._created)
        self._calls: dict[tuple[str, int, int], dict[str, RecomputedCall]] = {}
        self._edited_calls: dict[tuple[str, int], dict[str, tuple[Fact, RecomputedCall]]] = {}
        self._results: dict[str, Any] = {}

    def call_of(self, start: Fact) -> RecomputedCall | None:
        """The call of a valid start; None where plan and results make none with its key.

        Raises:
            UnreadableResult: a large result, of which its arguments are made, is not here.
        """
        return self._calls_of(start).get(start.key)

    def violations(self) -> Iterator[Violation]:
        """Each record that says another identity than follows from what precedes it."""
        yield from self._plan()
        for starts in self._validity.valid.values():
            for start in starts:
                yield from self._start(start)
        yield from self._commits()
        yield from self._probes()
        for requests in self._validity.history.requests.values():
            for request in requests:
                yield from self._form(request)
        yield from self._references()

    def _plan(self) -> Iterator[Violation]:
        """The first plan is what was submitted, by whoever or by the call of another job; of a goal, that its model is
        asked for just that.
        """
        history = self._validity.history
        if not history.plans.effective:
            return
        plan = history.facts[min(history.plans.effective)]
        submitted, goal, planned = self._created.get("plan"), self._created.get("goal"), plan.body.get("task_graph")
        if submitted is not None:
            same = _is_same(submitted, planned) or hash_or_empty(submitted) == history.hash_of(plan, "task_graph")
        else:
            same = not isinstance(goal, str) or _goes_for(_mapping(planned), goal, self._created)
        if not same or not is_of_its_call(self._created, planned):
            yield violation("plan_differs", plan, "the first plan is not the one that was submitted, or asked for")

    def _start(self, start: Fact) -> Iterator[Violation]:
        entry = self._validity.planned(start).entry
        try:
            calls = self._calls_of(start)
        except UnreadableResult:
            return  # said of the result itself
        if not _is_occurrence(start.body.get("occurrence"), entry.get("occurrence")):
            yield violation("occurrence_differs", start, f"node {start.node} has another occurrence in its plan")
        call, args_hash = calls.get(start.key), start.text("args_hash")
        if not (call is not None and call.args_hash == args_hash) and args_hash not in _hashes(calls):
            said = f"args_hash is not that of the arguments of node {start.node}, as plan, results and edits make them"
            yield violation("args_differ", start, said)
        if call is None:
            yield violation("key_differs", start, f"the key is not that of the call of node {start.node}")
        elif start.text("content_key") != call.content_key:
            yield violation("content_key_differs", start, f"content_key is not that of the call of node {start.node}")

    def _calls_of(self, start: Fact) -> Mapping[str, RecomputedCall]:
        """By key, the calls that a node may make: the plan's, and those that people's edits have made of it so far."""
        planned = self._validity.planned(start)
        said = self._validity.history.edits.get(start.node)
        edits = [edit for edit in said if edit.at < start.at] if said else ()
        known = (start.node, id(planned.entry), len(edits))
        found = self._calls.get(known)
        if found is None:
            call = self._planned(start, planned.entry, planned.tool)
            found = {} if call is None else {call.key: call}
            for edit in edits:
                made = self._edited(edit, planned.entry, planned.tool) if edit.key in found else None
                found |= {} if made is None else {made.key: made}
            self._calls[known] = found
        return found

    def _edited(self, edit: Fact, entry: Body, pinned: Body) -> RecomputedCall | None:
        """What the decision that stands about a call has made of it."""
        asking = self._validity.askings(edit.key, edit.at)[-1]
        args = edit.body.get("data")
        if self._validity.decision(edit.key, asking, edit.at + 1) is not edit or not isinstance(args, dict):
            return None
        return self._call(edit, entry, pinned, cast("dict[str, Any]", args))

    def _planned(self, fact: Fact, entry: Body, pinned: Body) -> RecomputedCall | None:
        """What a node's entry and the results before a record make; None where they make no call."""
        args: Any = entry.get("args") or {}
        try:
            named = {target: self._value(target, fact.at) for target in targets(args)} if args else {}
        except NoSuchPlace:
            return None
        found: Any = with_values(args, named) if named else args
        return self._call(fact, entry, pinned, found) if isinstance(found, dict) else None

    def _call(self, fact: Fact, entry: Body, pinned: Body, args: dict[str, Any]) -> RecomputedCall | None:
        tool, tenant = str(entry.get("tool") or entry.get("kind")), str(self._created.get("tenant"))
        volatile = pinned.get("volatile")
        names = set(map(str, cast("list[Any]", volatile))) if isinstance(volatile, list) else _NONE
        meant = args if names.isdisjoint(args) else {name: value for name, value in args.items() if name not in names}
        try:
            canonically = canonical(args) if args else b""
            told = by_meaning(meant)
            meaning = canonically if told is args else canonical(told) if told else b""
        except (ValueError, RecursionError):
            return None
        return RecomputedCall(
            args,
            hashlib.sha256(canonically).hexdigest(),
            _digest(f"{fact.job}\0{fact.node}\0{tool}\0", canonically),
            _digest(f"ck1\0{tenant}\0{tool}\0", meaning),
        )

    def _value(self, target: str, at: int) -> Any:
        """What a reference stands for, before a place in the log."""
        node, _, pointer = target.partition("#")
        if node in self._adopted:
            return pointed(self._adopted_result(node), pointer)
        settled = succeeded(self._validity, node, at)
        if settled is not None:
            if node not in self._results:
                self._results[node] = read_result(settled.fact, self._load)
            return pointed(self._results[node], pointer)
        waited = self._validity.history.wait_end(node, at)
        if waited is None:
            raise NoSuchPlace
        return pointed(waited.body.get("payload"), pointer)

    def _adopted_result(self, name: str) -> Any:
        adopted, result = self._adopted[name]
        reference = adopted.get("result_ref")
        if reference is None:
            return result
        fact, recorded = cast("Fact", self._validity.history.created), adopted.get("result_hash")
        stands = fact_of(fact.at, fact.offset, fact.event_id, "", {**adopted, "output_hash": recorded})
        return read_result(stands, self._load)

    def _commits(self) -> Iterator[Violation]:
        for key, commits in self._validity.history.commits.items():
            starts = self._validity.valid.get(key, ())
            hashes = {start.text("args_hash") for start in starts}
            for commit in commits:
                if hashes and commit.text("input_hash") not in hashes:
                    yield violation("input_hash_differs", commit, f"input_hash is not the args_hash of key {key}")

    def _probes(self) -> Iterator[Violation]:
        """What was asked is asked under the key that the try sent; what a probe is said to have found, it has found."""
        found: dict[tuple[str, str, str], int] = {}
        for (key, invocation_id), answers in self._validity.history.probes.items():
            for answer in answers:
                external_key, sent = answer.text("external_key"), self._sent(key, invocation_id, answer.at)
                if sent and external_key not in sent:
                    said = f"try {invocation_id} was sent under another external key than the one asked for"
                    yield violation("external_key_differs", answer, said)
                if answer.text("answer") == "found":
                    what = (key, external_key, _result_hash(answer))
                    found[what] = min(answer.at, found.get(what, answer.at))
        for (key, invocation_id), reports in self._validity.history.finishes.items():
            for report in reports:
                if report.text("via") != "probe" or report.outcome not in SUCCESSES:
                    continue
                result = _result_hash(report)
                sent = self._sent(key, invocation_id, report.at)
                if not any(found.get((key, external_key, result), report.at) < report.at for external_key in sent):
                    said = f"try {invocation_id} is said to have been found, and no probe before has found that"
                    yield violation("unprobed_success", report, said)

    def _sent(self, key: str, invocation_id: str, at: int) -> list[str]:
        """The external keys under which a try was sent before a place in the log: one, unless its id was used again."""
        starts = self._validity.valid_by_invocation.get(invocation_id, ())
        return [start.text("external_key") for start in starts if start.key == key and start.at < at]

    def _form(self, request: Fact) -> Iterator[Violation]:
        """A person is shown the call that he is asked about."""
        context = _mapping(_mapping(request.body.get("form")).get("context"))
        shown = context.get("arguments")
        tool = context.get("tool")
        named = (context.get("job_id"), context.get("node_id"), context.get("tool_version"))
        is_about = named == (request.job, request.node, request.body.get("tool_version")) and isinstance(tool, str)
        if not is_about or not isinstance(shown, dict) or not self._is_shown(request, str(tool), shown):
            yield violation("form_differs", request, f"the form of key {request.key} is about another call")

    def _is_shown(self, request: Fact, tool: str, arguments: Any) -> bool:
        try:
            canonically = canonical(arguments) if arguments else b""
        except ValueError:
            return False
        if hashlib.sha256(canonically).hexdigest() == request.text("args_hash"):
            return request.key == _digest(f"{request.job}\0{request.node}\0{tool}\0", canonically)
        try:
            call = self._asked_about(request)
        except UnreadableResult:
            return True  # said of the result itself
        same = call is not None and (call.args_hash, call.key) == (request.text("args_hash"), request.key)
        return same and call is not None and hash_or_empty(_shown(call.args)) == hash_or_empty(arguments)

    def _asked_about(self, request: Fact) -> RecomputedCall | None:
        """The call with a request's key that an edit before it has made; else its node's, as planned."""
        plans = self._validity.history.plans
        revision = plans.in_force(request.at)
        entry, pinned = plans.node(request.node, revision), plans.tool_of(request.node, revision)
        known = (request.node, plans.since(request.node, revision))
        if known not in self._edited_calls:
            edits = self._validity.history.edits.get(request.node, ())
            made = [(edit, self._edited(edit, entry, pinned)) for edit in edits]
            self._edited_calls[known] = {call.key: (edit, call) for edit, call in reversed(made) if call is not None}
        edit, call = self._edited_calls[known].get(request.key, (None, None))
        return call if edit is not None and edit.at < request.at else self._planned(request, entry, pinned)

    def _references(self) -> Iterator[Violation]:
        for fact in self._validity.history.references:
            reference = fact.body.get("result_ref")
            if reference is not None and not (is_blob(reference) and fact.body.get("result") is None):
                yield violation("bad_reference", fact, "result_ref is no reference, or a result stands beside it")


def _is_same(one: Any, other: Any) -> bool:
    """Whether two JSON values are the same to the type and the order of each part: then their hashes are, too."""
    try:
        return marshal.dumps(one, _WITHOUT_REFERENCES) == marshal.dumps(other, _WITHOUT_REFERENCES)
    except ValueError:  # too deep
        return False


def _hashes(calls: Mapping[str, RecomputedCall]) -> set[str]:
    return {call.args_hash for call in calls.values()}


def _result_hash(fact: Fact) -> str:
    """Of what a record says was found: it may be a large one, which is named by its bytes' hash."""
    reference = fact.body.get("result_ref")
    return hash_or_empty(fact.body.get("result") if reference is None else ["result_ref", reference])


def _goes_for(graph: Body, goal: str, created: Body) -> bool:
    """Whether a plan has one node, whose body goes for the goal by the brief; and what the brief offers its model.

    Of jobs of before that: which asks that model.
    """
    nodes = graph.get("nodes")
    entries = cast("list[object]", nodes) if isinstance(nodes, list) else []
    node = _mapping(entries[0]) if len(entries) == 1 else {}
    args, brief = _mapping(node.get("args")), _mapping(created.get("brief"))
    if node.get("kind") != "workflow":
        return _asks(graph, goal, created)
    names = {"goal", "brief"} | ({"first", "earlier"} if created.get("continues") is not None else set[str]())
    if (node.get("id"), node.get("tool"), args.get("goal")) != ("goal", "goal", goal) or not args.keys() <= names:
        return False
    offered = brief.get("tools")
    tools = {*map(str, cast("list[Any]", offered) if isinstance(offered, list) else []), "goal"}
    return hash_or_empty(args.get("brief")) == hash_or_empty(brief) and set(_mapping(graph.get("tools"))) == tools


def _asks(graph: Body, goal: str, created: Body) -> bool:
    """Whether a plan has one node, which asks the model of the brief for the goal, and what the brief offers it."""
    brief, nodes = _mapping(created.get("brief")), graph.get("nodes")
    entries = cast("list[object]", nodes) if isinstance(nodes, list) else []
    asking = _mapping(entries[0]) if len(entries) == 1 else {}
    args, tools = _mapping(asking.get("args")), brief.get("tools")
    offered = set(map(str, cast("list[Any]", tools))) if isinstance(tools, list) else set[str]()
    if (asking.get("kind"), args.get("prompt"), args.get("model")) != ("llm", goal, brief.get("model")):
        return False
    return set(_mapping(graph.get("tools"))) == set(_mapping(args.get("tools"))) == offered


def _adopted(created: Body) -> dict[str, tuple[Body, Any]]:
    """The steps of earlier jobs that references lead to, with their results as far as they are given."""
    continues = _mapping(created.get("continues"))
    given = {str(one.get("name")): one.get("result") for one in _mappings(continues.get("given"))}
    named = {f"{one.get('job_id')}/{one.get('node_id')}": one for one in _mappings(continues.get("adopted"))}
    return {name: (one, given.get(name)) for name, one in named.items()}


def _is_occurrence(recorded: object, planned: object) -> bool:
    expected = 1 if planned is None else planned
    return type(recorded) is int and type(expected) is int and recorded == expected


def _shown(args: Mapping[str, Any]) -> Mapping[str, Any]:
    """Arguments as a person is shown them where they are too large, or too deep: what names each."""
    if len(canonical(args)) <= SHOWN_BYTES and not _is_deep(args):
        return args
    return {name: _beginning(value) for name, value in islice(args.items(), MOST_SHOWN)}


def _beginning(value: Any) -> Any:
    data = canonical(value)
    if len(data) <= SHORT_BYTES:
        return value
    begins = value if isinstance(value, str) else data[: 4 * BEGINNING].decode(errors="ignore")
    named = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    return {"$left_out": named, "begins": begins[:BEGINNING]}


def _is_deep(value: Any) -> bool:
    level: list[Any] = [value]
    for _ in range(SHOWN_DEPTH):
        insides = (cast("Body", one).values() if isinstance(one, dict) else one for one in level)
        level = [inner for inside in insides for inner in inside if isinstance(inner, dict | list)]
    return bool(level)


def _digest(named: str, canonically: bytes) -> str:
    return hashlib.sha256(named.encode(errors="surrogatepass") + canonically).hexdigest()


def _mapping(value: object) -> Body:
    return cast("Body", value) if isinstance(value, dict) else {}


def _mappings(value: object) -> list[Body]:
    return [_mapping(item) for item in cast("list[object]", value)] if isinstance(value, list) else []
