"""The gate: who may say what about a call or a job, by the rule that the log has (docs/approvals.md).

One pure function. The gateway asks it before anything is written, the ledger before it believes a command; the proofs
have one of their own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase


class HumanAction(StrEnum):
    """What somebody wants to say; the value completes "may not …" and "named to …"."""

    APPROVE = "approve this"
    REJECT = "reject this"
    EDIT = "edit this"
    ANSWER = "answer this"
    RESOLVE = "resolve its calls in doubt"
    ACCEPT = "accept what could not be confirmed"
    CONTINUE = "continue it"


@dataclass(frozen=True, slots=True)
class Deciders:
    """Who may decide, as a rule said when it was recorded: without `approvers`, everybody but who asked for it."""

    rule: str | None = None
    approvers: Sequence[str] | None = None
    """Patterns of names: * and ? as in file names."""
    self_approval: bool = False
    """Whether who asked for it, by submitting the job or by editing the call, may decide as well."""


def gate(
    deciders: Deciders, who: str, action: HumanAction, *, submitted_by: str | None = None, edited_by: str | None = None
) -> str | None:
    """Why `who` may not say this, as a clear sentence; None where he may.

    `submitted_by` submitted the job that it is about, `edited_by` the last edit of the very call that it is about.
    """
    if not deciders.self_approval:
        if who == submitted_by:
            return f"who submitted the job may not {action}: somebody else must"
        if who == edited_by and action is HumanAction.APPROVE:
            return "who edited the call may not approve it: somebody else must"
    if deciders.approvers is not None and not any(fnmatchcase(who, pattern) for pattern in deciders.approvers):
        return f"others are named to {action}"
    return None
