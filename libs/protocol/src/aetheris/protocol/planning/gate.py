"""The gate: who may say what about a call or a job, by the rule that the log has (docs/approvals.md).

One pure function. The gateway asks it before anything is written, the ledger before it believes a command; the proofs
have one of their own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase

from aetheris.protocol.base.principals import Delegation, PrincipalKind, RecordedPrincipal, Role


class HumanAction(StrEnum):
    """What somebody wants to say; the value completes "may not …" and "named to …"."""

    APPROVE = "approve this"
    REJECT = "reject this"
    EDIT = "edit this"
    ANSWER = "answer this"
    RESOLVE = "resolve its calls in doubt"
    ACCEPT = "accept what could not be confirmed"
    CONTINUE = "continue it"
    RELEASE = "release a tool"
    UNFREEZE = "end a freeze"
    END_WORKER = "say that a worker has ended"
    REDRIVE = "redrive a dead letter"


@dataclass(frozen=True, slots=True)
class Deciders:
    """Who may decide, as a rule said when it was recorded: without `approvers`, everybody but who asked for it."""

    rule: str | None = None
    approvers: Sequence[str] | None = None
    """Patterns of names: * and ? as in file names."""
    self_approval: bool = False
    """Whether who asked for it, by submitting the job or by editing the call, may decide as well."""
    roles: Sequence[str] | None = None
    """Any of them will do."""
    kinds: Sequence[str] | None = None
    approvals: int = 1
    """How many different principals must say yes."""
    signed: bool = False
    """Whether each must sign what he says with a key of his own."""


@dataclass(frozen=True, slots=True)
class Vote:
    """Who has said yes, and under a rule that asks for it: the fingerprint of his key that signed just this."""

    who: RecordedPrincipal
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Matter:
    """What is decided: whose it is, who asked for it, and who has said yes already."""

    tenant: str | None = None
    """None: it is no tenant's alone."""
    submitted_by: str | None = None
    """Of the job that it is about."""
    edited_by: str | None = None
    """By whom the last edit of the very call is that it is about."""
    votes: Sequence[Vote] = ()


_SIGNABLE = frozenset({HumanAction.APPROVE, HumanAction.REJECT, HumanAction.EDIT})


def gate(
    deciders: Deciders, who: RecordedPrincipal, action: HumanAction, matter: Matter, key: str | None = None
) -> str | None:
    """Why he may not say this, as a clear sentence that names the rule and what it asks for; None where he may.

    `key` is the fingerprint of the key of his that signed just this; whether it did is for the caller to know.
    """
    return next(_refusals(deciders, who, action, matter, key), None)


def counted(deciders: Deciders, matter: Matter) -> tuple[RecordedPrincipal, ...]:
    """Of the votes for a yes those that count: of different principals, each let through by the gate."""
    found: list[Vote] = []
    for vote in matter.votes:
        so_far = Matter(matter.tenant, matter.submitted_by, matter.edited_by, tuple(found))
        if gate(deciders, vote.who, HumanAction.APPROVE, so_far, vote.key) is None:
            found.append(vote)
    return tuple(vote.who for vote in found)


def _refusals(
    deciders: Deciders, who: RecordedPrincipal, action: HumanAction, matter: Matter, key: str | None
) -> Iterator[str]:
    if matter.tenant is not None and who.tenant != matter.tenant:
        yield "the job is another tenant's"
    if not deciders.self_approval:
        if matter.submitted_by in who.names:
            yield f"who submitted the job may not {action}: somebody else must"
        if matter.edited_by in who.names and action is HumanAction.APPROVE:
            yield "who edited the call may not approve it: somebody else must"
    if who.delegation is not None:
        yield from _not_lent(who, who.delegation, action)
    if who.breaks_glass:
        yield from _no_emergency(who)
    else:
        if action is HumanAction.APPROVE and any(vote.who.names & who.names for vote in matter.votes):
            yield f"who has approved this already is counted once: {deciders.approvals} different ones must"
        yield from _not_named(deciders, who, action)
    if deciders.signed:
        if who.delegation is not None:
            yield "where a signature is asked for, nobody acts in another's place: it would not say so"
        yield from _unsigned(deciders, action, matter, key)


def _not_lent(who: RecordedPrincipal, delegation: Delegation, action: HumanAction) -> Iterator[str]:
    """Why he may not say this in another's place."""
    if delegation.at >= delegation.until:
        yield f"what {delegation.principal} has lent has ended"
    if who.breaks_glass:
        yield "an emergency is decided in nobody's place"
    if action is HumanAction.EDIT:
        yield "who acts in another's place may not edit: it would be that one's call"


def _no_emergency(who: RecordedPrincipal) -> Iterator[str]:
    """Why he may not set aside whom the rule names; that it is somebody else's he never may."""
    if Role.BREAK_GLASS not in who.roles:
        yield f"the role {Role.BREAK_GLASS} is needed to decide in an emergency"
    if who.kind is not PrincipalKind.PERSON:
        yield f"only a person may decide in an emergency; this is a principal of kind {who.kind}"


def _unsigned(deciders: Deciders, action: HumanAction, matter: Matter, key: str | None) -> Iterator[str]:
    """What a rule that asks for signatures asks for in an emergency too: else whoever runs the system could say it."""
    by = f" by rule {deciders.rule}" if deciders.rule is not None else ""
    if action not in _SIGNABLE:
        yield f"to {action} needs a signature{by}, and can't be signed: have the call tried again, or cancel it"
    if key is None:
        yield f"who may {action} must sign it with his own key{by}"
    if action is HumanAction.APPROVE and any(vote.key == key for vote in matter.votes):
        yield f"that key has signed this already: {deciders.approvals} different ones must"


def _not_named(deciders: Deciders, who: RecordedPrincipal, action: HumanAction) -> Iterator[str]:
    """What the rule asks for beside that it is somebody else."""
    by = f" by rule {deciders.rule}" if deciders.rule is not None else ""
    if deciders.kinds is not None and who.kind not in deciders.kinds:
        yield f"only a {' or a '.join(deciders.kinds)} may {action}{by}; this is a principal of kind {who.kind}"
    named = deciders.approvers
    if named is not None and not any(fnmatchcase(who.entitled_as, pattern) for pattern in named):
        yield f"others are named to {action}{by}: {', '.join(named) or 'nobody'}"
    if deciders.roles is not None and not set(deciders.roles) & set(who.roles):
        yield f"the role {' or '.join(deciders.roles)} is needed to {action}{by}"
