"""What a listed MCP tool becomes: effect class and irreversibility from its annotations, and its answer (pure)."""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mcp_types import CallToolResult, TextContent, ToolAnnotations
from mcp_types import Tool as ListedTool

from aetheris.protocol.base.keys import external_key
from aetheris.sdk.context import ToolContext
from aetheris.sdk.outcomes import Failed, Partial, Result
from aetheris.sdk.schema import BadArguments, DeclarationError, GivenSchema, given_schema
from aetheris.sdk.toolkits.mcp.pins import fingerprint
from aetheris.sdk.toolkits.mcp.servers import Declared, McpServer
from aetheris.sdk.tools import AnyTool, EffectClass, Tool

Call = Callable[[ToolContext, str, str, dict[str, Any]], Awaitable[CallToolResult]]
"""(context, the server's name for the tool, the fingerprint of what it listed, arguments) → the server's answer."""

_KEY = external_key("00000000-0000-7000-8000-000000000000", "node", 0)
_WHERE_PARTS_LIE = ("$schema", "$defs", "definitions")
_NOTHING_DECLARED = Declared()
_LONGEST_DESCRIPTION = 4_000


def effect_class_of(annotations: ToolAnnotations | None) -> EffectClass:
    """What is known of a call whose end nobody saw, by the protocol's hints; without one, nothing."""
    if annotations is not None and annotations.read_only_hint:
        return "pure"
    return "idempotent" if annotations is not None and annotations.idempotent_hint else "opaque"


def is_irreversible(annotations: ToolAnnotations | None) -> bool:
    """The protocol's own default: what doesn't only read, and isn't said to only add, may destroy."""
    if annotations is None:
        return True
    return not annotations.read_only_hint and annotations.destructive_hint is not False


def registered_schema(name: str, server: McpServer, listed: ListedTool) -> GivenSchema:
    """What a tool of a server takes from who calls it: all but the external key.

    Raises:
        DeclarationError: it can't be registered, can only be called as a task, or has no such argument for the key.
    """
    if listed.execution is not None and listed.execution.task_support == "required":
        raise DeclarationError("is called as a task only, which newer versions of the protocol don't have")
    whole = given_schema(listed.input_schema, name)
    keyed = server.tools.get(listed.name, _NOTHING_DECLARED).external_key
    return whole if keyed is None else given_schema(without_key(whole.schema, keyed, name), name)


def tool_of(server_name: str, server: McpServer, listed: ListedTool, call: Call) -> AnyTool:
    """A tool of a server, as it is registered: `server.tool`.

    Raises:
        DeclarationError: its name or its schema can't be registered, it can only be called as a task, or it has no
            such argument for the external key as is declared.
    """
    declared = server.tools.get(listed.name, _NOTHING_DECLARED)
    hints = listed.annotations if server.annotations == "trusted" else None
    effect_class = declared.effect_class or effect_class_of(hints)
    irreversible = is_irreversible(hints) if declared.irreversible is None else declared.irreversible
    name = f"{server_name}.{listed.name}"
    schema, keyed = registered_schema(name, server, listed), declared.external_key
    pure = effect_class == "pure"
    pinned = fingerprint(listed)
    on_error = declared.on_error or server.on_error

    async def function(ctx: ToolContext, /, **arguments: Any) -> Result | Partial:
        if keyed is not None:
            if keyed in arguments:
                raise Failed(f"{keyed} is given the external key: leave it out")
            arguments = {**arguments, keyed: ctx.external_key}
        answer = await call(ctx, listed.name, pinned, arguments)
        return judged(answer, ctx.external_key, pure=pure, on_error=on_error, most_bytes=server.most_bytes)

    function.__doc__ = (listed.description or "")[:_LONGEST_DESCRIPTION]
    return Tool(
        function,
        name=name,
        version=server.version,
        effect_class=effect_class,
        irreversible=irreversible and not pure,
        timeout_s=declared.timeout_s or server.timeout_s,
        settles_within_s=None,  # a server's tools have no probe that could be believed too early
        volatile=declared.volatile,
        on_in_doubt=declared.on_in_doubt,
        duplicate_scope="job",
        duplicate_window_s=86_400.0,
        probe=None,
        schema=schema,
    )


def without_key(schema: Mapping[str, Any], argument: str, tool: str) -> dict[str, Any]:
    """The schema of what is left for a plan to say, where one argument is given the external key.

    Raises:
        DeclarationError: there is no such argument, or it takes no such text: the server would see no key, and what
            it is sent twice would count twice.
    """
    properties: Mapping[str, Any] = schema.get("properties", {})
    if argument not in properties:
        known = ", ".join(sorted(properties)) or "none"
        raise DeclarationError(f"{tool}: external_key: {argument} is no argument of it (it has {known})")
    alone = {name: schema[name] for name in _WHERE_PARTS_LIE if name in schema}
    alone |= {"type": "object", "properties": {argument: properties[argument]}}
    try:
        given_schema(alone, tool).bind({argument: _KEY})
    except BadArguments as refused:
        raise DeclarationError(f"{tool}: external_key: {argument} can't be a text such as {_KEY} ({refused})") from None
    left = {**schema, "properties": {name: one for name, one in properties.items() if name != argument}}
    if argument in schema.get("required", ()):
        left["required"] = [one for one in schema["required"] if one != argument]
    return left


def judged(
    answer: CallToolResult, external_key: str, *, pure: bool, on_error: str, most_bytes: int
) -> Result | Partial:
    """What an answer says of the call. A tool that reports an error has ended, and may have done a part of it.

    Raises:
        Failed: it reads only, and reports an error, or too much.
    """
    value = value_of(answer)
    size = len(json.dumps(value))
    if size > most_bytes:
        if pure:
            raise Failed(f"the MCP server's answer has {size} bytes, and {most_bytes} are taken (most_bytes)")
        value = {"content": [], "leftOut": {"bytes": size, "most": most_bytes}}
        value |= {"isError": True} if answer.is_error else {}
    result = Result(value, None if pure else external_key)
    if not answer.is_error or on_error == "result":
        return result
    if pure:
        raise Failed(_words(answer) or "the tool reports an error")
    return Partial(result)


def value_of(answer: CallToolResult) -> Any:
    """An answer as it is recorded: structured content where there is some, else the content as the protocol has it."""
    content = [one.model_dump(mode="json", by_alias=True, exclude_none=True) for one in answer.content]
    found: dict[str, Any] = {"content": content}
    if answer.structured_content is not None:
        found["structuredContent"] = answer.structured_content
    if answer.is_error:
        found["isError"] = True
    return found


def _words(answer: CallToolResult) -> str:
    return " ".join(one.text for one in answer.content if isinstance(one, TextContent))
