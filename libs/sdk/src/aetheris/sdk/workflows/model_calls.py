"""The calls that a model wants within a workflow: a model repeats itself, and what it repeats is not meant twice.

A framework's toolset stands on these (docs/workflows.md, "A model in it"): it shows the tools, hands a call over, and
says in its framework's words what came of it.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from aetheris.protocol.base.canonical import InvalidArgs, canonical
from aetheris.protocol.planning.personal_fields import personal_fields
from aetheris.sdk.tools import AnyTool
from aetheris.sdk.workflows.body_run import BodyRun, CallStanding
from aetheris.sdk.workflows.call_arguments import checked_arguments, node_of
from aetheris.sdk.workflows.errors import Misuse, ToolFailed

MOST_TRIES = 10
"""Of an equal call that surely fails each time, as outside of workflows."""
_DIGITS = 16


@dataclass(frozen=True, slots=True)
class ModelTool:
    """A tool as a model is shown it: `name` is one that providers take, `call` has it called.

    An equal call is the same one while it is open, when it succeeded, and when nobody knows; it is another where it
    surely took no effect (ten times at most), or where the tool only reads.
    """

    run: BodyRun = field(repr=False)
    tool: AnyTool

    @property
    def name(self) -> str:
        """Its name; `_` stands for what providers don't take."""
        return re.sub(r"[^A-Za-z0-9_-]", "_", self.tool.name)

    @property
    def description(self) -> str:
        """What it does, as its function says."""
        return str(self.tool.registry_entry()["description"])

    @property
    def schema(self) -> Mapping[str, Any]:
        """The JSON Schema of its arguments."""
        return self.tool.schema

    async def call(self, args: Mapping[str, Any]) -> Any:
        """What the call came to, as it is recorded.

        Raises:
            ToolFailed: there is no effect of it, and there never will be.
            OutcomeUnknown: it may have taken effect; an equal call says the same.
            Misuse: its schema refuses the arguments, and nothing was called: a model may correct them.
        """
        given = checked_arguments(self.tool.name, self.tool, args)
        if self.tool.pure:
            node_id, number = self.run.content_id(self.tool.name, given)
            node = node_of(id=node_id, tool=self.tool.name, args=given, occurrence=number)
            return (await self.run.call(node, is_named=False)).result
        meant = _meaning(self.tool, given)
        for number in range(1, MOST_TRIES + 1):
            node_id = self.run.named_id(f"model.{meant}.{number}")
            standing = self.run.standing(node_id)
            node = node_of(id=node_id, tool=self.tool.name, args=given)
            try:
                return (await self.run.call(node, is_named=True)).result
            except ToolFailed:
                if standing is not CallStanding.SETTLED or number == MOST_TRIES:
                    raise
        raise AssertionError("the last of them returns or raises")


def model_tools(run: BodyRun, tools: Mapping[str, AnyTool | None], patterns: Sequence[str]) -> list[ModelTool]:
    """Those of a workflow's tools that fit the patterns.

    Raises:
        Misuse: a pattern that none fits, or a tool that can't be shown to a model.
    """
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in tools):
            raise Misuse(f"{pattern}: no tool that the workflow names fits it")
    found: list[ModelTool] = []
    for name, tool in tools.items():
        if not any(fnmatchcase(name, pattern) for pattern in patterns):
            continue
        if tool is None:
            raise Misuse(f"{name}: the workflow names it by its name alone, so nobody here knows what it takes")
        if personal_fields(tool.schema):
            raise Misuse(f"{name}: it takes what is personal, and no model calls such a tool")
        found.append(ModelTool(run, tool))
    if len({one.name for one in found}) < len(found):
        raise Misuse("two tools would have the same name for a model: choose them one by one")
    return found


def _meaning(tool: AnyTool, args: Mapping[str, Any]) -> str:
    """What tells an equal call: the tool, and its arguments but the volatile ones."""
    kept = {name: value for name, value in args.items() if name not in tool.volatile}
    try:
        said = tool.name.encode() + b"\0" + canonical(kept)
    except (InvalidArgs, RecursionError) as refused:
        raise Misuse(f"{tool.name}: its arguments have no canonical form: {refused}") from None
    return hashlib.sha256(said).hexdigest()[:_DIGITS]
