"""Answers that their request wants signed: what is signed, and whether it was, before anything is written."""

import base64
from dataclasses import asdict
from datetime import datetime

from aetheris.gateway.core.problems import ForbiddenProblem
from aetheris.gateway.core.requests import HumanResponse, Question
from aetheris.protocol.api import ToSign
from aetheris.protocol.base.allowed_signers import AllowedSigners
from aetheris.protocol.base.canonical import InvalidArgs
from aetheris.protocol.base.keys import args_hash
from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages import events as ev
from aetheris.protocol.plan.forms import AnswerRefused
from aetheris.protocol.planning.approval_text import (
    NAMESPACE,
    ApprovalText,
    SignatureRefused,
    signed_request,
    signing_key,
)
from aetheris.protocol.planning.approvals import changed_by


def wants_signature(question: Question) -> ev.ApprovalRequested | None:
    """The request, where it is one that each signs who answers it."""
    asked = question.asked
    return asked if isinstance(asked, ev.ApprovalRequested) and asked.signed else None


def signed_by(
    job: JobState, question: Question, response: HumanResponse, signers: AllowedSigners, at: datetime
) -> str | None:
    """The fingerprint of his key that signed his answer; None where the request wants none signed.

    Raises:
        Forbidden: nothing did that counts.
    """
    asked = wants_signature(question)
    if asked is None:
        return None
    data_hash = _edit_hash(asked, response) if response.action == "edit" else None
    text = ApprovalText.by(response.who, signed_request(job, question.key, asked), response.action, data_hash)
    try:
        return signing_key(text, response.signature, signers, at)
    except SignatureRefused as refused:
        raise ForbiddenProblem("not_signed", str(refused)) from None


def to_sign(job: JobState, question: Question, approver: str, signers: AllowedSigners, at: datetime) -> ToSign | None:
    """What he would sign of a request, and his passkeys that count; None where it wants none."""
    asked = wants_signature(question)
    if asked is None:
        return None
    own = [one.key for one in signers.lines if one.is_for(approver, NAMESPACE) and one.is_valid(at)]
    passkeys = tuple(base64.b64encode(key.blob).decode() for key in own if key.is_passkey)
    return ToSign(**asdict(signed_request(job, question.key, asked)), approver=approver, passkeys=passkeys)


def _edit_hash(asked: ev.ApprovalRequested, response: HumanResponse) -> str | None:
    """None for what is no edit of it, which is refused for that."""
    try:
        return args_hash(changed_by(asked, response.data))
    except (AnswerRefused, InvalidArgs):
        return None
