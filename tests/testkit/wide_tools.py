"""Tools whose results and arguments are as large as the test wants; load as `tests.testkit.wide_tools`."""

import hashlib
from typing import Any

from aetheris.sdk import tool


@tool("wide", effect_class="idempotent")
async def wide(size: int) -> dict[str, Any]:
    """A result of that many bytes, which no compression would make smaller."""
    found = "".join(hashlib.sha256(b"%d" % at).hexdigest() for at in range(size // 64 + 1))
    return {"text": found[:size]}


@tool("take", effect_class="idempotent")
async def take(text: str) -> dict[str, Any]:
    """How much it was given."""
    return {"size": len(text)}
