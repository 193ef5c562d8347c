"""Tools that are given a person's value and do their worst with it; load as `tests.testkit.personal_tools`.

PERSONAL_SEEN is a file: what a tool was given is appended to it as hex SHA-256, to show that it was given.
"""

import asyncio
import base64
import hashlib
import logging
import os
import sys
from pathlib import Path
from typing import Annotated, Any

from aetheris.sdk import (
    Failed,
    Found,
    NotExecuted,
    Personal,
    ProbeContext,
    Result,
    StateChange,
    ToolContext,
    tool,
)

Told = Annotated[str, Personal("/customer")]


def saw(value: str) -> None:
    with Path(os.environ["PERSONAL_SEEN"]).open("a") as seen:
        seen.write(hashlib.sha256(value.encode()).hexdigest() + "\n")


@tool("echo", effect_class="idempotent")
async def echo(customer: str, email: Told, large: int = 0) -> Result:
    """Returns, prints and logs what it was given, in every form that it can think of."""
    saw(email)
    print("printed", email)  # noqa: T201 - that is the point
    sys.stderr.write(f"written {email}\n")
    logging.getLogger("echo").error("logged %s", email)
    value: dict[str, Any] = {
        "plain": email,
        "basic": base64.b64encode(f"user:{email}".encode()).decode(),
        "hex": email.encode().hex(),
        "nested": [{"said": f"Bearer {email}!", email: 1}],
        "filler": f"{email} " * large,
    }
    changes = [StateChange("mailbox", email, "create", external_ref=f"of {customer}: {email}")]
    return Result(value, f"mail {email}", changes)


@tool("pay", effect_class="idempotent")
async def pay(customer: str, email: Told, amount: int) -> Result:
    """Has an external id, and one value of three that is hidden."""
    saw(email)
    return Result({"paid": amount, "to": customer}, f"re_{hashlib.sha256(email.encode()).hexdigest()[:12]}")


@tool("refuses", effect_class="idempotent", on_in_doubt="fail")
async def refuses(customer: str, email: Told, how: str) -> None:
    """Says what it was given in its error."""
    saw(email)
    if how == "failed":
        raise Failed(f"{customer} has no {email}")
    if how == "not_executed":
        raise NotExecuted(email)
    raise ConnectionResetError(email)


@tool("lost", effect_class="probeable", irreversible=True, settles_within_s=0)
async def lost(ctx: ToolContext, customer: str, email: Told) -> Result:
    """Takes effect, and never says so."""
    saw(email)
    Path(os.environ["PERSONAL_SEEN"]).with_suffix(".lost").write_text(f"{customer}\n{email}\n{ctx.external_key}")
    raise ConnectionResetError(email)


@lost.probe
async def find_lost(external_key: str, ctx: ProbeContext) -> Found:
    """Finds it, and echoes it."""
    email = Path(os.environ["PERSONAL_SEEN"]).with_suffix(".lost").read_text().split("\n")[1]
    print("probed", email, ctx.job_id)  # noqa: T201
    return Found({"email": email}, email, (email, external_key), (StateChange("mailbox", email, "create"),))


@tool("posts", effect_class="opaque", irreversible=False)
async def posts(customer: str, email: Told) -> Result:
    """Takes effect, and does not say so while the file beside PERSONAL_SEEN stands."""
    saw(email)
    held = Path(os.environ["PERSONAL_SEEN"]).with_suffix(".held")
    while held.exists():  # noqa: ASYNC110  a file, of another process
        await asyncio.sleep(0.05)
    return Result({"posted": email, "for": customer}, f"posted {email}", [StateChange("mailbox", email, "create")])


@tool("sends", effect_class="idempotent", irreversible=True)
async def sends(customer: str, email: Told, copies: int = 1) -> Result:
    """Cannot be undone, so somebody is asked first."""
    saw(email)
    return Result({"to": email, "copies": copies, "of": customer}, f"sent {email}")


@tool("greet", effect_class="idempotent")
async def greet(text: Any) -> str:
    """Takes anything; control: what isn't marked is recorded."""
    return f"canary-control {text}"
