"""Requests to humans: their ids, who may answer, and what an edit makes of a call (docs/approvals.md)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, cast

from aetheris.protocol.base.canonical import canonical
from aetheris.protocol.base.ids import NAME, execution_id
from aetheris.protocol.base.keys import args_hash, idempotency_key
from aetheris.protocol.base.principals import PrincipalKind, RecordedPrincipal
from aetheris.protocol.base.references import references
from aetheris.protocol.fold.state import JobState, KeyState
from aetheris.protocol.messages.events import ApprovalRequested, ApprovalVoted, JobWaiting, PolicyAllowed
from aetheris.protocol.plan.forms import AnswerRefused, FormField, answers
from aetheris.protocol.planning.gate import Deciders, HumanAction, Matter, Vote, counted, gate
from aetheris.protocol.planning.schemas import ArgsRefused, Schema, check_args

_SEPARATOR = ":"
"""In no job_id."""


def request_id(job_id: str, node_id: str, key: str, token: int = 1) -> str:
    """The id of the request about one call: it names the job, so that it can be answered from the log alone.

    A request about a retry by hand names its token as well.
    """
    asked = f"{job_id}{_SEPARATOR}{execution_id(job_id, node_id, key)}"
    return asked if token == 1 else f"{asked}{_SEPARATOR}{token}"


def job_of(request: str) -> str | None:
    """The job that a request's id names; None where it is no id of a request."""
    job_id, _, rest = request.partition(_SEPARATOR)
    return job_id if rest and NAME.fullmatch(job_id) else None


def contract_of(request: str) -> str:
    """The execution contract that a request's id names."""
    return request.partition(_SEPARATOR)[2].partition(_SEPARATOR)[0]


_WORDS: Mapping[str, HumanAction] = {
    "approve": HumanAction.APPROVE,
    "reject": HumanAction.REJECT,
    "edit": HumanAction.EDIT,
}


def deciders_of(asked: ApprovalRequested | PolicyAllowed | JobWaiting) -> Deciders:
    """Who may decide, as the log has it. Forms of a plan may be answered by who submitted it."""
    is_form = isinstance(asked, JobWaiting) and asked.wait_type == "human"
    return Deciders(
        asked.rule,
        asked.approvers,
        bool(asked.self_approval) or is_form,
        asked.approver_roles,
        asked.approver_kinds,
        asked.approvals or 1,
        bool(asked.signed),
    )


def recorded(deciders: Deciders) -> dict[str, Any]:
    """What the log keeps of who may decide; only what is so."""
    return {
        "rule": deciders.rule,
        "approvers": _kept(deciders.approvers),
        "approver_roles": _kept(deciders.roles),
        "approver_kinds": _kept(deciders.kinds),
        "self_approval": deciders.self_approval or None,
        "approvals": deciders.approvals if deciders.approvals > 1 else None,
        "signed": deciders.signed or None,
    }


def _kept(names: Sequence[str] | None) -> tuple[str, ...] | None:
    return tuple(names) if names is not None else None


class Owned(Protocol):
    """What says whose a job is: its creation, or its row in the list."""

    @property
    def tenant(self) -> str:
        """Whose it is."""
        ...

    @property
    def submitted_by(self) -> str:
        """By his name."""
        ...


def may_not_answer(
    asked: ApprovalRequested | JobWaiting,
    action: str,
    job: Owned,
    who: RecordedPrincipal,
    votes: Sequence[Vote] = (),
    *,
    key: str | None = None,
) -> str | None:
    """Why somebody may not answer a request with this action; None if he may. `key`: of his that signed it."""
    if isinstance(asked, JobWaiting):
        return gate(deciders_of(asked), who, HumanAction.ANSWER, _matter(job))
    return gate(deciders_of(asked), who, _WORDS[action], matter_of(asked, job, votes), key)


def may_not_resolve(job: JobState, state: KeyState, who: RecordedPrincipal, verdict: str) -> str | None:
    """Why somebody may not say what became of a call; None if he may.

    What is tried again is approved anew, and signed there where a rule asks for that.
    """
    deciders = resolvers(job, state)
    if verdict == "retry":
        deciders = replace(deciders, signed=False)
    return gate(deciders, who, HumanAction.RESOLVE, _matter(job.created))


def resolvers(job: JobState, state: KeyState) -> Deciders:
    """Who may say what became of a call that has started, and how many must: as its job's own log has it.

    Whom the request for its approval named, else the policy's own word that let it start. A call with neither was let
    start by a rule that names nobody. Whatever policy is activated meanwhile changes nothing of that.
    """
    started = state.started
    if state.requested is not None:
        return deciders_of(state.requested)
    allowed = state.allowed_as(started.tool_version) if started is not None else None
    if allowed is not None:
        return deciders_of(allowed)
    return unnamed(started.rule if started is not None else None, irreversible=_irreversible(job, state))


def unnamed(rule: str | None, *, irreversible: bool) -> Deciders:
    """Who may decide where nobody is named: anybody but who submitted the job; of what can't be undone, a person."""
    return Deciders(rule, kinds=(PrincipalKind.PERSON,) if irreversible else None)


def may_not_accept(asked: JobWaiting, job: Owned, who: RecordedPrincipal) -> str | None:
    """Why somebody may not let a job go on although what it did could not be confirmed; None if he may."""
    return gate(deciders_of(asked), who, HumanAction.ACCEPT, _matter(job))


def matter_of(asked: ApprovalRequested, job: Owned, votes: Sequence[Vote]) -> Matter:
    """What a yes to a request would be about, behind these votes."""
    return Matter(job.tenant, job.submitted_by, asked.edited_by, votes)


def votes_that_count(asked: ApprovalRequested, job: Owned, votes: Sequence[Vote]) -> tuple[str, ...]:
    """The names of those whose votes are for a yes."""
    return tuple(one.id for one in counted(deciders_of(asked), matter_of(asked, job, votes)))


def votes_as_recorded(votes: Iterable[ApprovalVoted]) -> tuple[Vote, ...]:
    """Votes as the log has them, by the keys that it says have signed them: whether they have is not looked at."""
    return tuple(Vote(voter(vote), vote.signature.key if vote.signature is not None else None) for vote in votes)


def voter(vote: ApprovalVoted) -> RecordedPrincipal:
    """Who has voted; of whom nothing fitting is said beside his name, as a service without roles."""
    said = vote.principal
    if said is None or said.id != vote.approver:
        return RecordedPrincipal(id=vote.approver, kind=PrincipalKind.SERVICE, roles=())
    return said


def _irreversible(job: JobState, state: KeyState) -> bool:
    entry = job.entry(state.node_id, state.started.revision if state.started is not None else None)
    return entry is not None and entry.irreversible


def _matter(job: Owned) -> Matter:
    return Matter(job.tenant, job.submitted_by)


def arguments_of(requested: ApprovalRequested) -> dict[str, Any] | None:
    """The arguments that were put to the human; None where they are not those that the request is bound to."""
    shown = requested.form.get("context")
    found = cast("Mapping[str, Any]", shown).get("arguments") if isinstance(shown, dict) else None
    if not isinstance(found, dict) or args_hash(cast("dict[str, Any]", found)) != requested.args_hash:
        return None
    return cast("dict[str, Any]", found)


def fields_in(form: Mapping[str, Any]) -> tuple[FormField, ...]:
    """The fields of a recorded form."""
    return tuple(FormField.model_validate(one) for one in cast("Sequence[Any]", form.get("fields", ())))


def changed_by(requested: ApprovalRequested, data: Mapping[str, Any], *, hidden: bool = False) -> dict[str, Any]:
    """The arguments that were shown, with what an edit changes; whether they are a call's is for `edited`.

    `hidden`: what it makes of personal arguments is hidden.

    Raises:
        AnswerRefused: naming the field.
    """
    shown = arguments_of(requested)
    if shown is None:
        raise AnswerRefused("data", "the recorded request can't be edited")
    return shown | answers(fields_in(requested.form), data, complete=False, hidden=hidden)


def edited(
    requested: ApprovalRequested, schema: Schema, data: Mapping[str, Any], *, hidden: bool = False
) -> dict[str, Any]:
    """The arguments of the new call that an edit makes: those that were shown, with what was changed.

    `hidden`: as `changed_by` has it; what was changed was checked before it was hidden.

    Raises:
        AnswerRefused: naming the field.
    """
    shown, changed = arguments_of(requested), changed_by(requested, data, hidden=hidden)
    if any(references(changed)):
        raise AnswerRefused("data", "may not hold references")
    if canonical(changed) == canonical(shown):
        raise AnswerRefused("data", "changes nothing: approve it, or edit a field")
    try:
        check_args(schema, changed)
    except ArgsRefused as error:
        raise AnswerRefused(error.field.lstrip("/").replace("/", ".") or "data", error.rule) from None
    return changed


def had_before(job: JobState, node_id: str, tool: str, args: dict[str, Any]) -> str | None:
    """Why an edit can't give a step these arguments; None where it never had them.

    A call's key is made of its arguments: what was decided about the earlier call stands.
    """
    state = job.keys.get(idempotency_key(job.job_id, node_id, tool, args))
    if state is None:
        return None
    how = f"was {state.reason}" if state.reason is not None else "is known"
    return (
        f"the step had these arguments before, and that call {how}: it is not asked for again. "
        "Edit to other arguments, or reject this request"
    )
