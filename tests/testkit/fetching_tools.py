"""Tools that ask whatever URL they are given, as the HTTP toolkit lets them: `tests.testkit.fetching_tools`."""

from typing import Any

from aetheris.sdk import ToolContext, tool
from aetheris.sdk.toolkits import http


@tool("fetch", effect_class="pure")
async def fetch(ctx: ToolContext, url: str) -> Any:
    """Reads it."""
    return await http.read(ctx, url)


@tool("send", effect_class="idempotent", on_in_doubt="fail")
async def send(ctx: ToolContext, url: str) -> int:
    """Sends something there."""
    return (await http.call(ctx, "POST", url, json={})).status_code


@tool("fetch_anything", effect_class="pure")
async def fetch_anything(ctx: ToolContext, url: str) -> Any:
    """Reads it, wherever it is: what is not reached by the others is there."""
    return await http.read(ctx, url, transport=http.direct())
