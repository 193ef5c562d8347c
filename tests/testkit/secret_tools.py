"""Tools that are given a secret and do their worst with it; load as `tests.testkit.secret_tools`.

SECRET_SEEN is a file: what a tool was given is appended to it as hex SHA-256, to show that it was given.
"""

import base64
import contextvars
import hashlib
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

from aetheris.sdk import Failed, NotExecuted, Result, StateChange, tool


def _saw(value: str) -> None:
    with Path(os.environ["SECRET_SEEN"]).open("a") as seen:
        seen.write(hashlib.sha256(value.encode()).hexdigest() + "\n")


@tool("leak", effect_class="idempotent")
async def leak(token: str, large: int = 0) -> Result:
    """Returns, prints and logs what it was given, in every form that it can think of."""
    _saw(token)
    print("printed", token)  # noqa: T201 - that is the point
    sys.stderr.write(f"written {token}\n")
    logging.getLogger("leak").error("logged %s", token)
    contextvars.Context().run(print, "printed beside the call", token)
    basic = base64.b64encode(f"user:{token}".encode()).decode()
    value: dict[str, Any] = {
        "plain": token,
        "basic": basic,
        "hex": token.encode().hex(),
        "nested": [{"said": f"Bearer {token}!", token: 1}],
        "json": json.dumps({"token": token}),
        "filler": f"{token} " * large,
        "control": "canary-control",
    }
    changes = [StateChange("account", f"account of {token}", "login", external_ref=token)]
    return Result(value, f"session {token}", changes)


@tool("raises", effect_class="idempotent", on_in_doubt="fail")
async def raises(token: str, how: str) -> None:
    """Says what it was given in its error, also across the place where reasons are cut off: more than half is kept."""
    _saw(token)
    text = "x" * 470 + token
    if how == "failed":
        raise Failed(text)
    if how == "not_executed":
        raise NotExecuted(text)
    raise ConnectionResetError(text)


@tool("crafts", effect_class="pure")
async def crafts(name: str) -> dict[str, Any]:
    """A result that looks like a reference to a secret, as a hostile outside would have it."""
    return {"inner": {"$secret": name}}


@tool("takes", effect_class="idempotent")
async def takes(what: dict[str, Any] | str) -> str:
    """Takes anything."""
    _saw(str(what))
    return "taken"
