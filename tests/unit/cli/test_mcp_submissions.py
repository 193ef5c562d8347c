"""What an agent submits over MCP with personal arguments: refused by name, before anything is named by their values."""

from typing import Any, cast

import pytest

from aetheris.cli.mcp_submissions import Submissions
from aetheris.sdk.equal_calls import PersonalTool

EMAIL = {"type": "string", "x-personal": "/who"}
TOOLS = [
    {"name": "invite", "schema": {"type": "object", "properties": {"who": {"type": "string"}, "email": EMAIL}}},
    {"name": "odd", "schema": {"type": "object", "properties": {"all": {"type": "array", "items": EMAIL}}}},
    {"name": "look", "schema": {"type": "object"}},
]
INVITE = {"id": "a", "tool": "invite", "args": {"who": "c-17", "email": "canary@example.org"}}


class ListingGateway:
    """Lists tools, and takes nothing."""

    async def tools(self) -> list[dict[str, Any]]:
        return TOOLS

    async def submit(self, *_: object, **__: object) -> None:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("node", "tool"),
    [
        (INVITE, "invite"),
        ({"id": "a", "tool": "look", "compensate_with": {"tool": "invite", "args": {}}}, "invite"),
        ({"id": "a", "tool": "odd", "args": {}}, "odd"),
    ],
)
async def test_a_plan_with_personal_arguments_is_refused_by_name_and_not_said(node: dict[str, Any], tool: str) -> None:
    submissions = Submissions(cast("Any", ListingGateway()), "run")
    with pytest.raises(PersonalTool, match=f"{tool}: x-personal isn't served") as refused:
        await submissions.submit("name", {"nodes": [node]})
    assert "canary" not in str(refused.value)
    with pytest.raises(NotImplementedError):
        await submissions.submit("name", {"nodes": [{"id": "a", "tool": "look", "args": {}}]})
