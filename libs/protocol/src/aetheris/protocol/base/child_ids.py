"""How calls of a body are named, and the digest by which a body says which of them it has asked for."""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from aetheris.protocol.base.hidden_values import MARK, by_meaning
from aetheris.protocol.base.keys import canonical_args

_NO_NAME = re.compile(r"[^A-Za-z0-9_.-]")
_TOOL_CHARS = 30
_MODULUS = 2**256
NOTHING_RECORDED = f"{0:064x}"
"""The frontier of a body before which nothing was recorded."""


def child_id(parent: str, tool: str, args: Mapping[str, Any], occurrence: int) -> str:
    """The id of a call by what it says: {tool}.{16 hex digits}.{occurrence}, the same in every job and at every place.

    Of the tool's name, 30 characters; what may stand in no id is "-" there. Of a hidden value d and k enter, not c.

    Raises:
        InvalidArgs: they have no canonical form.
    """
    canonical = canonical_args(args)
    return child_id_of_canonical(
        parent, tool, canonical if MARK not in canonical else canonical_args(by_meaning(args)), occurrence
    )


def child_id_of_canonical(parent: str, tool: str, meant: bytes, occurrence: int) -> str:
    """`child_id` of arguments by their meaning that are canonical already."""
    digest = hashlib.sha256(f"{parent}\0{tool}\0".encode() + meant).hexdigest()
    return f"{_NO_NAME.sub('-', tool[:_TOOL_CHARS])}.{digest[:16]}.{occurrence}"


def weight(node_id: str) -> int:
    """What a call adds to a frontier: its id's SHA-256 as a number."""
    return int.from_bytes(hashlib.sha256(node_id.encode()).digest())


def frontier(total: int) -> str:
    """A frontier, from the sum of the weights of the calls in it: 64 hex digits, modulo 2^256.

    A sum, so that it is kept up call by call however many there were. It tells apart what honest bodies have asked
    for; who wants to lie about that needs no collision.
    """
    return f"{total % _MODULUS:064x}"
