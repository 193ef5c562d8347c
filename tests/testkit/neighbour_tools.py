"""Tools of a tenant that has much to do, and of one that has little. Load as `tests.testkit.neighbour_tools`."""

import asyncio

from aetheris.sdk import NotExecuted, tool

STAYS_S = 3600


@tool("never_now", effect_class="idempotent", timeout_s=30)
async def never_now() -> None:
    """It can't be made now; it took no effect."""
    raise NotExecuted("not now")


@tool("takes_long", effect_class="idempotent", timeout_s=STAYS_S)
async def takes_long() -> None:
    """A call of an hour."""
    await asyncio.sleep(STAYS_S)


@tool("echo", effect_class="pure")
async def echo(text: str) -> str:
    """What it was given."""
    return text
