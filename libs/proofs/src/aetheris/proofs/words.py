"""What a try says of itself, and the word that proves it: each is the hash of the one before, the last is its name."""

from collections.abc import Mapping
from hashlib import sha256

from aetheris.proofs.records import Body
from aetheris.proofs.writers import OWN_WORD

NONCE = b"nonce1\x00"

_STEPS: Mapping[str, int] = {
    "permanent_failure": 4,
    "retryable_failure": 4,
    "compensatable_failure": 3,
    "success": 3,
}
"""Outcome → how many hashes lead from its word to the try's name."""

_RETURNED, _IN_DOUBT = 2, 1

_TOOK_EFFECT = frozenset({"success", "compensatable_failure"})
_MAY_SAY: Mapping[str, frozenset[str]] = {
    "executor": frozenset(_STEPS),
    "late": frozenset(_STEPS),
    "catch_up": _TOOK_EFFECT,
    "probe": _TOOK_EFFECT,
    "human": _TOOK_EFFECT | {"permanent_failure"},
    "ledger": frozenset({"permanent_failure"}),
}
"""Who may say how a try ended: that it certainly took no effect, and may be repeated, it alone can."""


def is_proved(kind: str, body: Body) -> bool:
    """Whether what is said of a try is said by who may, and where that is the try itself, with its word."""
    if kind == "invocation_in_doubt":
        return (body.get("returned") is not True and body.get("word") is None) or proves_doubt(body)
    via = str(body.get("via"))
    return str(body.get("outcome")) in _MAY_SAY.get(via, ()) and (via not in OWN_WORD or proves_end(body))


def proves_end(body: Body) -> bool:
    """Whether a tool_invocation_finished has the word of the try that it names."""
    return _leads(body, _STEPS.get(str(body.get("outcome"))))


def proves_doubt(body: Body) -> bool:
    """Whether an invocation_in_doubt has the word of the try that it names."""
    return _leads(body, _RETURNED if body.get("returned") is True else _IN_DOUBT)


def _leads(body: Body, steps: int | None) -> bool:
    reported, invocation_id = body.get("word"), body.get("invocation_id")
    if steps is None or not isinstance(reported, str) or not isinstance(invocation_id, str) or len(reported) != 64:
        return False
    try:
        value = bytes.fromhex(reported)
    except ValueError:
        return False
    if value.hex() != reported:
        return False
    for _ in range(steps):
        value = sha256(NONCE + value).digest()
    return value.hex() == invocation_id
