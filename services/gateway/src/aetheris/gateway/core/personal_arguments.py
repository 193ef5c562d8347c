"""Personal arguments in plans: found by the tools' schemas, hidden, or refused where none are served; pure."""

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from aetheris.gateway.core import bodies
from aetheris.gateway.core.problems import BadRequestProblem, ConflictProblem
from aetheris.protocol.base.canonical import canonical, is_longer
from aetheris.protocol.base.hidden_values import MOST_SUBJECTS, HiddenValue, hidden_places, holds_hidden, put_at
from aetheris.protocol.base.references import UnresolvedReference, point, pointer_part, references
from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages.commands import RegistryEntry, Submit
from aetheris.protocol.plan.graph import MAX_PLAN_BYTES, Kind, Node, TaskGraph, hides
from aetheris.protocol.planning.approvals import fields_in
from aetheris.protocol.planning.goals import GOAL_ENTRY
from aetheris.protocol.planning.invocation import has_hidden
from aetheris.protocol.planning.personal_fields import (
    PERSONAL,
    PersonalField,
    PersonalRefused,
    PersonalValue,
    field_at,
    personal_fields,
    personal_values,
    signalled_values,
    subject_of,
)

NOT_SERVED = "personal_not_served"
"""The code of a refusal: what is not hidden is not written."""


@dataclass(frozen=True, slots=True)
class PersonalArgument:
    """A value in the clear, and where it stands: in which node, in which of its arguments (`within`, names)."""

    node: int
    within: tuple[str, ...]
    value: PersonalValue

    @property
    def field(self) -> str:
        """As refusals name it."""
        return f"plan.nodes[{self.node}].{'.'.join(self.within)}{self.value.at}"


def refusal(field: str, rule: str) -> BadRequestProblem:
    """What is said of a personal value that can't be hidden where it stands."""
    return BadRequestProblem(NOT_SERVED, field, rule)


def personal_arguments(plan: Mapping[str, Any], registry: Mapping[str, RegistryEntry]) -> list[PersonalArgument]:
    """The personal values of a pinned plan.

    Raises:
        BadRequest: one stands where it can't be hidden, or something refers to what will be.
    """
    pinned = (name for name in plan.get("tools", ()) if name != GOAL_ENTRY.name)
    marked = {name: fields for name in pinned if (fields := _fields(registry[name]))}
    asked = _asked(plan)
    if not marked and not asked:
        return []
    found: list[PersonalArgument] = []
    whole: set[str] = set()
    for index, within, tool, args in _calls(plan):
        fields = [one.at for one in marked.get(tool, ())]
        answered = {one.at for one in references(args) if one.pointer in asked.get(one.node_id, ())}
        if within == ("args",) and answered & set(fields):
            whole.add(plan["nodes"][index]["id"])
        if fields:
            given = answered if within == ("args",) else ()
            found += _of_call(index, within, registry[tool], args, given)
    whole |= {plan["nodes"][one.node]["id"] for one in found if one.within == ("args",)}
    _check_references(plan, whole, asked, marked)
    return found


def personal_answers(form: Mapping[str, Any], data: Mapping[str, Any]) -> list[PersonalValue]:
    """The answers to the personal fields of a recorded form; `data` is what was filled in, in the clear.

    Raises:
        BadRequest: the person isn't there.
    """
    said = {**form.get("context", {}).get("arguments", {}), **data}
    found: list[PersonalValue] = []
    for field in fields_in(form):
        if field.personal is None or data.get(field.name) is None:
            continue
        at = pointer_part(field.name)
        place = field_at(at, field.personal)
        try:
            found.append(PersonalValue(at, subject_of(place, said), data[field.name]))
        except PersonalRefused as refused:
            raise refusal(f"data.{field.name}", refused.rule) from None
    return found


def signalled(job: JobState, correlation_key: str, payload: Any) -> list[PersonalValue]:
    """What of a signal's payload, which is in the clear, the node that waits for it declares to be a person's.

    Raises:
        BadRequest: it isn't where it is declared, or no person is named.
    """
    waits = (entries[-1].node.wait for entries in job.entries.values())
    wait = next((one for one in waits if one is not None and one.key == correlation_key), None)
    try:
        return signalled_values(wait, payload) if wait is not None else []
    except PersonalRefused as refused:
        raise refusal(f"payload{refused.at}", refused.rule) from None


def hidden_submission(
    command: Submit, raw: bytes, arguments: Sequence[PersonalArgument], values: Sequence[HiddenValue]
) -> Submit:
    """The command with each value hidden, and the hash of the request as it would be with them.

    Raises:
        BadRequest: the plan is too large then.
    """
    plan, body = dict(command.plan or {}), bodies.parsed(raw)[0]
    for argument, value in zip(arguments, values, strict=True):
        plan = _put(plan, argument, value)
        body["plan"] = _put(body["plan"], argument, value)
    if is_longer(plan, MAX_PLAN_BYTES):
        raise bodies.plan_too_large()
    return command.model_copy(update={"plan": plan, "request_hash": hashlib.sha256(canonical(body)).hexdigest()})


def check_offered(tools: Sequence[str], registry: Mapping[str, RegistryEntry]) -> None:
    """Whether a model may be offered tools: what it gives them would be recorded in the clear.

    Raises:
        BadRequest.
    """
    for name in tools:
        if _fields(registry[name]):
            raise refusal("tools", f"{name}: {PERSONAL} isn't served there: a model would say the value in the clear")


def check_workflows(graph: TaskGraph, registry: Mapping[str, RegistryEntry]) -> None:
    """Whether workflows may run: what their code gives to tools, and is given, is recorded in the clear.

    Raises:
        BadRequest.
    """
    for index, node in enumerate(graph.nodes):
        if node.kind is not Kind.WORKFLOW or node.tool is None:
            continue
        for name in (node.tool, *registry[node.tool].calls):
            if _fields(registry[name]):
                rule = f"{name}: {PERSONAL} isn't served there: code would say the value in the clear"
                raise refusal(f"plan.nodes[{index}].tool", rule)


def check_unmarked(plan: Mapping[str, Any], registry: Mapping[str, RegistryEntry], what: str) -> None:
    """Whether a plan that is made of another job's holds nothing personal, hidden or not.

    Raises:
        BadRequest.
    """
    for index, node in enumerate(plan["nodes"]):
        if _hides(node):
            at = f"plan.nodes[{index}].{'form' if node.get('form') else 'wait'}"
            raise refusal(at, f"{PERSONAL} isn't served there: {what}")
    for index, within, tool, args in _calls(plan):
        if holds_hidden(args) or (tool in registry and _fields(registry[tool])):
            rule = f"{PERSONAL} isn't served there: {what}"
            raise refusal(f"plan.nodes[{index}].{'.'.join(within)}", rule)


def check_continuable(job: JobState) -> None:
    """Whether a job can be continued: its hidden values are its own, and no other job's.

    Raises:
        Conflict.
    """
    for node_id, entries in job.entries.items():
        if has_hidden(job, node_id) or any(hides(entry.node) for entry in entries):
            message = f"{PERSONAL} isn't served there: {node_id} has hidden values, which are this job's alone"
            raise ConflictProblem(NOT_SERVED, message, node_id=node_id)


def check_editable(
    schema: Mapping[str, Any] | None, form: Mapping[str, Any], data: Mapping[str, Any], *, signed: bool
) -> None:
    """Whether an edit leaves whose the hidden values of a call are.

    Raises:
        BadRequest: it names another person, or is signed, which hides nothing.
    """
    if schema is None:
        if holds_hidden(form):
            raise refusal("data", f"{PERSONAL} isn't served there: an edit; reject the call, and submit another")
        return
    shown = form.get("context", {}).get("arguments", {})
    edited = {**shown, **data} if isinstance(shown, dict) else dict(data)
    for field in personal_fields(schema):
        if signed and field.at in map(pointer_part, data):
            raise refusal(f"data{field.at}", f"{PERSONAL} isn't served there: what is signed is not hidden")
        if field.named or field.subject == field.at:
            continue
        for name in data:
            if f"{field.subject}/".startswith(f"{pointer_part(name)}/") and _is_there(edited, field.at):
                raise refusal(f"data.{name}", f"{PERSONAL} isn't served there: it says whose {field.at} is")


def check_subjects(args: Mapping[str, Any]) -> None:
    """Whether an edited call's values are of no more persons than one's may be; raises BadRequest."""
    if len({name for one in hidden_places(args) for name in one.value.pseudonyms}) > MOST_SUBJECTS:
        raise refusal("data", f"values of more than {MOST_SUBJECTS} subjects")


def _is_there(args: Mapping[str, Any], at: str) -> bool:
    try:
        point(args, at, at)
    except UnresolvedReference:
        return False
    return True


def _calls(plan: Mapping[str, Any]) -> Iterator[tuple[int, tuple[str, ...], str, Any]]:
    """(the place of the node, where its arguments lie, the tool, the arguments) of each call of a plan."""
    for index, node in enumerate(plan["nodes"]):
        if node.get("tool") is not None:
            yield index, ("args",), node["tool"], node.get("args", {})
        undo = node.get("compensate_with")
        if undo is not None:
            yield index, ("compensate_with", "args"), undo["tool"], undo.get("args", {})


def _asked(plan: Mapping[str, Any]) -> dict[str, frozenset[str]]:
    """Each node with a result that is hidden in part, as its form or its wait says → the places of it."""
    return {node["id"]: places for node in plan["nodes"] if (places := _hides(node))}


def _hides(node: Mapping[str, Any]) -> frozenset[str]:
    asks = node.get("form") or (node.get("wait") or {}).get("personal")
    return hides(Node.model_validate(node)) if asks else frozenset()


def _of_call(
    index: int, within: tuple[str, ...], entry: RegistryEntry, args: Any, answered: Collection[str]
) -> list[PersonalArgument]:
    at = f"plan.nodes[{index}].{'.'.join(within)}"
    try:
        found = [PersonalArgument(index, within, one) for one in personal_values(entry.schema_, args, answered)]
    except PersonalRefused as refused:
        raise refusal(f"{at}{refused.at}", refused.rule) from None
    taken = {one.at for one in personal_fields(entry.schema_)} & set(answered)
    if len({one.value.subject for one in found}) + len(taken) > MOST_SUBJECTS:
        raise refusal(at, f"values of more than {MOST_SUBJECTS} subjects")
    return found


def _check_references(
    plan: Mapping[str, Any],
    hidden: Collection[str],
    asked: Mapping[str, Collection[str]],
    marked: Mapping[str, Sequence[PersonalField]],
) -> None:
    """The result of a call with hidden values is hidden whole: nothing can be taken from it.

    What a person fills in, or a signal says, that is hidden goes whole into a personal argument, and nowhere else.
    """
    for index, node in enumerate(plan["nodes"]):
        given = (("args", node.get("args")), ("compensate_with.args", (node.get("compensate_with") or {}).get("args")))
        for within, args in given:
            takes = {one.at for one in marked.get(node.get("tool"), ())} if within == "args" else frozenset[str]()
            for one in references(args):
                at = f"plan.nodes[{index}].{within}{one.at}"
                if one.node_id in hidden:
                    raise refusal(at, f"{PERSONAL} isn't served there: the result of {one.node_id} is hidden whole")
                if _reaches(one.pointer, asked.get(one.node_id, ())) and not (
                    one.at in takes and one.pointer in asked[one.node_id]
                ):
                    rule = f"{PERSONAL} isn't served there: only a personal argument takes what {one.node_id} hides"
                    raise refusal(at, rule)


def _reaches(pointer: str, places: Collection[str]) -> bool:
    """Whether a pointer leads to one of the places, above or into it."""
    return any(f"{one}/".startswith(f"{pointer}/") or pointer.startswith(f"{one}/") for one in places)


def _put(plan: Any, argument: PersonalArgument, value: HiddenValue) -> dict[str, Any]:
    nodes = list(cast("list[Any]", plan["nodes"]))
    at = "".join(map(pointer_part, argument.within)) + argument.value.at
    nodes[argument.node] = put_at(nodes[argument.node], at, value.json())
    return {**plan, "nodes": nodes}


def _fields(entry: RegistryEntry) -> tuple[PersonalField, ...]:
    try:
        return personal_fields(entry.schema_)
    except PersonalRefused as refused:
        raise refusal("plan", f"{entry.name}: {refused}") from None
