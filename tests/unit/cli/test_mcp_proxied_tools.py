"""Which tools of a server the MCP proxy shows, whatever the server says of them (docs/mcp.md)."""

from pathlib import Path
from typing import Any, cast

import pytest
from mcp_types import Tool as ListedTool

from aetheris.cli.mcp_proxy.proxied_calls import ProxiedCalls, ProxySettings
from aetheris.cli.mcp_proxy.proxied_tools import ProxiedTools
from aetheris.sdk.call_port import CallRefused
from aetheris.sdk.client import AsyncClient
from aetheris.sdk.toolkits.mcp.pins import Pins, fingerprint
from aetheris.sdk.toolkits.mcp.servers import McpServer

SCHEMA = {"type": "object", "properties": {"amount": {"type": "integer"}}}
PAY: dict[str, Any] = {"name": "pay", "inputSchema": SCHEMA, "annotations": {"readOnlyHint": True}}
ENTRY: dict[str, Any] = {"name": "shop.pay", "schema": SCHEMA, "effect_class": "opaque", "irreversible": True}


class Registry:
    """A gateway that lists these tools; whatever else it is asked fails."""

    def __init__(self, *entries: dict[str, Any]) -> None:
        self.entries = entries

    async def tools(self) -> list[dict[str, Any]]:
        return list(self.entries)


def tools_of(folder: Path, *entries: dict[str, Any], pinned: tuple[dict[str, Any], ...] = (PAY,)) -> ProxiedTools:
    pins = Pins(folder / "pins.json")
    pins.keep("shop", {one["name"]: fingerprint(ListedTool.model_validate(one)) for one in pinned})
    server = McpServer(command="x", tools={})
    return ProxiedTools("shop", server, pins, cast("AsyncClient", Registry(*entries)), lambda _tool, _why: None)


async def test_a_hint_that_a_tool_only_reads_makes_it_no_reading_tool(tmp_path: Path) -> None:
    tools = tools_of(tmp_path, ENTRY)
    (shown,) = await tools.shown([PAY], as_task=False)
    assert shown == PAY
    calls = ProxiedCalls(cast("AsyncClient", Registry()), tools, ProxySettings())

    async def listed() -> None:
        raise AssertionError

    refused = await calls.call({"name": "pay"}, {}, None, listed, None)
    assert (refused["isError"], "belongs to no run" in str(refused)) == (True, True)
    too_long = await calls.call({"name": "pay"}, {"io.aetheris/run": "x" * 201}, None, listed, None)
    assert "a run is named by" in str(too_long)


@pytest.mark.parametrize(
    ("listed", "why"),
    [
        ({**PAY, "description": "now it does something else"}, "says something else of itself"),
        ({**PAY, "inputSchema": {"type": "object"}}, "says something else of itself"),
        ({**PAY, "annotations": {"readOnlyHint": False}}, "says something else of itself"),
        ({**PAY, "name": "pay2"}, "is not pinned"),
        ({**PAY, "inputSchema": "none"}, "is no tool"),
    ],
)
async def test_a_tool_that_is_another_than_was_pinned_is_left_out_and_refused_by_name(
    tmp_path: Path, listed: dict[str, Any], why: str
) -> None:
    tools = tools_of(tmp_path, ENTRY, {**ENTRY, "name": "shop.pay2"})
    assert len(await tools.shown([PAY], as_task=False)) == 1
    assert await tools.shown([listed], as_task=False) == []
    with pytest.raises(CallRefused, match=f"{listed['name']} {why}"):
        tools.tool(listed["name"])


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ((), "is not registered"),
        (({**ENTRY, "name": "pay"},), "is not registered"),
        (({**ENTRY, "schema": {"type": "object", "properties": {"to": {"type": "string"}}}},), "another schema"),
        (({**ENTRY, "schema": {**SCHEMA, "x-personal": "/amount"}},), "another schema"),
    ],
)
async def test_a_tool_of_ours_that_has_its_name_is_not_called_for_it(
    tmp_path: Path, entries: tuple[dict[str, Any], ...], why: str
) -> None:
    tools = tools_of(tmp_path, *entries)
    assert await tools.shown([PAY], as_task=False) == []
    with pytest.raises(CallRefused, match=why):
        tools.tool("pay")
    with pytest.raises(CallRefused, match="is no tool of this server"):
        tools.tool("another")


async def test_what_is_no_tool_at_all_is_passed_over(tmp_path: Path) -> None:
    tools = tools_of(tmp_path, ENTRY)
    shown = await tools.shown([None, "pay", {"name": 7}, [], PAY, {}], as_task=True)
    assert [(one["name"], one["execution"]) for one in shown] == [("pay", {"taskSupport": "optional"})]
    tools.forget()
    assert not tools.has("pay")
