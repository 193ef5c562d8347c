"""Declaring workflows: an async function whose calls take effect once, whatever dies (docs/workflows.md).

@workflow(version="1", tools=[charge, send_mail])
async def handle(ctx: WorkflowContext, order_id: str) -> str: ...
"""

import hashlib
import inspect
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import update_wrapper
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from pydantic_core import PydanticSerializationError, to_jsonable_python

from aetheris.protocol.plan.graph import JOB_TOOLS, LOCAL_TOOLS, WORKFLOW_NODE
from aetheris.protocol.planning.personal_fields import personal_fields
from aetheris.sdk.results import check_returned
from aetheris.sdk.schema import BadArguments, DeclarationError, signature_of
from aetheris.sdk.tools import LONGEST_DESCRIPTION, AnyTool, Tool, place_of
from aetheris.sdk.workflows.body_run import BodyRun
from aetheris.sdk.workflows.child_jobs import AnyStartable, ChildWorkflows, Startable
from aetheris.sdk.workflows.errors import Misuse
from aetheris.sdk.workflows.workflow_context import WorkflowContext

P = ParamSpec("P")
R = TypeVar("R")

NODE = WORKFLOW_NODE
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class Workflow(Startable[P, R]):
    """A declared workflow: code that calls tools, and is run again where it stopped when what runs it dies."""

    def __init__(
        self,
        function: Callable[Concatenate[WorkflowContext, P], Coroutine[Any, Any, R]],
        *,
        name: str,
        version: str,
        tools: Sequence[AnyTool | str],
        starts: Sequence[AnyStartable | str] = (),
        strict: bool = False,
    ) -> None:
        self.function = function
        self.strict = strict
        self.name = name
        self.version = version
        self.tools: Mapping[str, AnyTool | None] = {
            one.name if isinstance(one, Tool) else one: one if isinstance(one, Tool) else None for one in tools
        }
        self.starts: Mapping[str, AnyStartable | None] = {
            one if isinstance(one, str) else one.name: None if isinstance(one, str) else one for one in starts
        }
        update_wrapper(cast("Any", self), function)
        for field in (name, version):
            if not _NAME.fullmatch(field):
                raise DeclarationError(f"{self.key}: name and version must match [A-Za-z0-9_.-]{{1,64}}")
        if not inspect.iscoroutinefunction(function):
            raise DeclarationError(f"{self.key}: a workflow is an async function")
        self.signature = signature_of(function, WorkflowContext, self.key)
        if not self.signature.injected:
            raise DeclarationError(f"{self.key}: its first parameter is ctx: WorkflowContext")
        if personal_fields(self.signature.schema):
            raise DeclarationError(f"{self.key}: a workflow takes nothing that is personal: hand it to its tools")
        check_returned(function, self.key)
        self.code_hash = _code_hash(function)

    @property
    def key(self) -> str:
        """name@version."""
        return f"{self.name}@{self.version}"

    @property
    def place(self) -> tuple[str, int] | None:
        """The file and line of its function."""
        return place_of(self.function)

    @property
    def ref(self) -> str:
        """Where its code is: module:function."""
        return f"{self.function.__module__}:{self.function.__qualname__}"

    def plan(self, *args: P.args, **kwargs: P.kwargs) -> dict[str, Any]:
        """The plan of a job that runs it: `client.submit(handle.plan(order="o-1"))`. Arguments go by name.

        Raises:
            Misuse: they are not what it takes.
        """
        if args:
            raise Misuse(f"{self.key}: its arguments are given by name")
        return plan_of(self.name, self.checked(kwargs))

    async def main(self, run: BodyRun) -> R:
        """The body itself.

        Raises:
            Misuse: its arguments are not what it takes.
        """
        try:
            arguments = self.signature.bind(run.start.args)
        except BadArguments as refused:
            raise Misuse(f"{self.key}: {refused}") from None
        function = cast("Callable[..., Coroutine[Any, Any, R]]", self.function)
        return await function(WorkflowContext(run, self.tools, children=ChildWorkflows(self.starts, self)), **arguments)

    @property
    def body(self) -> Callable[..., Any]:
        """Its function."""
        return self.function

    def checked(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments as a plan has them.

        Raises:
            Misuse: they are not what it takes.
        """
        try:
            self.signature.bind(dict(given))
            return to_jsonable_python(dict(given))
        except BadArguments as refused:
            raise Misuse(f"{self.key}: {refused}") from None
        except (PydanticSerializationError, ValueError):
            raise Misuse(f"{self.key}: its arguments hold what JSON can't say") from None

    def registry_entry(self) -> dict[str, Any]:
        """The workflow as tools.registry has it; code itself changes nothing, and its calls are calls."""
        return {
            "name": self.name,
            "version": self.version,
            "kind": "workflow",
            "description": (inspect.getdoc(self.function) or "")[:LONGEST_DESCRIPTION],
            "schema": self.signature.schema,
            "schema_hash": self.signature.schema_hash,
            "effect_class": "pure",
            "irreversible": False,
            "calls": sorted({*self.tools, *LOCAL_TOOLS, *JOB_TOOLS}),
            "starts": sorted(self.starts),
            "code_hash": self.code_hash,
        }


AnyWorkflow = Workflow[..., Any]


def plan_of(name: str, args: Mapping[str, Any]) -> dict[str, Any]:
    """The plan of a job that runs a registered workflow."""
    return {"nodes": [{"id": NODE, "kind": "workflow", "tool": name, "args": dict(args)}]}


def workflow(
    name: str | None = None,
    *,
    version: str = "1",
    tools: Sequence[AnyTool | str],
    starts: Sequence[AnyStartable | str] = (),
    strict: bool = False,
) -> Callable[[Callable[Concatenate[WorkflowContext, P], Coroutine[Any, Any, R]]], Workflow[P, R]]:
    """Declare an async function as a workflow; its first parameter is ctx: WorkflowContext, all others are arguments.

    Args:
        name: the function's own name by default.
        version: of its code, for people; which calls may go on follows from what is recorded, not from this.
        tools: what it may call: tools, or names of registered ones.
        starts: what it may begin as jobs of their own: workflows, or names of registered ones; its own name, too.
        strict: a clock, chance, files, network or threads of its own end it, with the line named; its code runs slower.

    Raises:
        DeclarationError: what can't be registered as it is written.
    """

    def declare(function: Callable[Concatenate[WorkflowContext, P], Coroutine[Any, Any, R]]) -> Workflow[P, R]:
        try:
            called = name or function.__name__
            return Workflow(function, name=called, version=version, tools=tools, starts=starts, strict=strict)
        except DeclarationError as refused:
            refused.place = place_of(function)
            raise

    return declare


def _code_hash(function: Callable[..., Any]) -> str:
    """hex SHA-256 of the file that the function stands in; of its code where there is no file."""
    file = inspect.getsourcefile(function)
    try:
        data = Path(file).read_bytes() if file is not None else b""
    except OSError:
        data = b""
    return hashlib.sha256(data or function.__code__.co_code).hexdigest()
