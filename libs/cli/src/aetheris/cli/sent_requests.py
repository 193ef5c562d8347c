"""What was sent, as it is kept beside its receipt, against the job that came of it (docs/receipts.md)."""

from collections.abc import Mapping
from typing import Any, cast

from pydantic import ValidationError

from aetheris.protocol.base.canonical import InvalidArgs, canonical, digest, parse
from aetheris.protocol.base.references import HIDDEN
from aetheris.protocol.plan.graph import Compensation, Node, TaskGraph


def difference(sent: bytes, request_hash: str, created: Mapping[str, Any]) -> str | None:
    """What of a submission's body is otherwise in its receipt, or in the creation of its job; None where nothing is.

    Arguments may have gained the defaults of their tool's schema. What is hidden is not compared, and nor is the hash,
    which is then made of the hidden form.
    """
    try:
        body = parse(sent)
        if not isinstance(body, dict):
            return "what was kept of it is no request"
        request, plan = cast("dict[str, Any]", body), created.get("plan")
        if b'"$hidden"' not in canonical(plan) and digest(request) != request_hash:
            return "its request_hash is not that of what was sent"
        for name in ("goal", "agent", "session"):
            if request.get(name) != created.get(name):
                return f"its {name} is not the one that was sent"
        if (request.get("labels") or None) != (created.get("labels") or None):
            return "its labels are not those that were sent"
        return _of_plan(request["plan"], plan) if request.get("plan") is not None else None
    except (InvalidArgs, ValidationError):
        return "what was kept of it, or its job, is no plan"


def _of_plan(sent: Any, recorded: Any) -> str | None:
    asked = TaskGraph.model_validate({name: value for name, value in dict(sent).items() if name != "tools"})
    planned = TaskGraph.model_validate(recorded)
    if len(asked.nodes) != len(planned.nodes):
        return "its plan has other nodes than the one that was sent"
    for one, other in zip(asked.nodes, planned.nodes, strict=True):
        if not _is_node(one, other):
            return f"node {one.id} of its plan is not the one that was sent"
    return None


def _is_node(sent: Node, recorded: Node) -> bool:
    same = sent.model_copy(update={"args": recorded.args, "compensate_with": recorded.compensate_with})
    return same == recorded and _holds(sent.args, recorded.args) and _undoes(sent, recorded.compensate_with)


def _undoes(sent: Node, recorded: Compensation | None) -> bool:
    own = sent.compensate_with
    if own is None or recorded is None:
        return own is recorded
    return own.model_copy(update={"args": recorded.args}) == recorded and _holds(own.args, recorded.args)


def _holds(sent: Any, recorded: Any) -> bool:
    """Whether all that was sent stands there, as it was sent."""
    if isinstance(recorded, dict) and HIDDEN in recorded:
        return True
    if isinstance(sent, dict) and isinstance(recorded, dict):
        said, kept = cast("dict[str, Any]", sent), cast("dict[str, Any]", recorded)
        return all(name in kept and _holds(value, kept[name]) for name, value in said.items())
    if isinstance(sent, list) and isinstance(recorded, list):
        many, others = cast("list[Any]", sent), cast("list[Any]", recorded)
        return len(many) == len(others) and all(map(_holds, many, others))
    return canonical(sent) == canonical(recorded)
