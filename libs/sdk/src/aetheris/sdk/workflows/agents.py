"""An agent on pydantic-ai within a workflow: its model's answers and its tools' calls are recorded, and made once.

```python
ask = model_tool("ask", "openai-chat:gpt-5")
agent = Agent(instructions="Settle the order.")


@workflow(tools=[ask, refund, send_mail])
async def settle(ctx: WorkflowContext, order: str) -> str:
    model, tools = RecordedModel(ctx, ask), ctx.toolset(["refund", "send_mail"])
    return (await agent.run(f"Refund {order}.", model=model, toolsets=[tools])).output
```
"""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, cast

from pydantic import TypeAdapter
from pydantic_ai import ModelRetry, RunContext, ToolDefinition
from pydantic_ai.exceptions import ToolFailed as ModelToolFailed
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse
from pydantic_ai.models import Model, ModelRequestParameters, infer_model
from pydantic_ai.settings import ModelSettings
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_core import SchemaValidator, core_schema, to_jsonable_python

from aetheris.sdk.tools import Tool, tool
from aetheris.sdk.workflows.errors import Misuse, OutcomeUnknown, ToolFailed
from aetheris.sdk.workflows.model_calls import ModelTool
from aetheris.sdk.workflows.workflow_context import WorkflowContext

Answers = dict[str, Any]
AskedModel = Tool[[list[Any], dict[str, Any], dict[str, Any]], Coroutine[Any, Any, Answers]]
"""A tool that asks a model: messages, settings and request parameters, as JSON."""

_CORRECTIONS = 3
_ANYTHING = SchemaValidator(core_schema.any_schema())  # the tool's own schema checks its arguments
_OTHER_EACH_TIME = frozenset({"timestamp", "run_id", "conversation_id"})
"""What pydantic-ai notes of a message, and is another in each run of the code."""
_RESPONSE: TypeAdapter[ModelResponse] = TypeAdapter(ModelResponse)
_PARAMETERS: TypeAdapter[ModelRequestParameters] = TypeAdapter(ModelRequestParameters)
_NOTHING = "It took no effect, and may be called again."
_UNKNOWN = "Nobody knows whether it took effect. A human decides what becomes of it: the same call is not made again."


def model_tool(
    name: str, model: Model | str | Callable[[], Model], *, version: str = "1", timeout_s: float = 120.0
) -> AskedModel:
    """A tool that asks a model, for `RecordedModel`. It runs where tools do, and has their environment and secrets.

    Args:
        model: or its name, as pydantic-ai has it, or what makes it: those two are made where the tool runs, when it is
            called first, so that who runs workflows needs no key.
    """
    made: list[Model] = []

    @tool(name=name, version=version, effect_class="pure", timeout_s=timeout_s)
    async def ask(messages: list[Any], settings: dict[str, Any], parameters: dict[str, Any]) -> Answers:
        """Ask a model what to do next."""
        if not made:
            made.append(
                infer_model(model) if isinstance(model, str) else model if isinstance(model, Model) else model()
            )
        answer = await made[0].request(
            ModelMessagesTypeAdapter.validate_python(messages),
            cast("ModelSettings", settings),
            _PARAMETERS.validate_python(parameters),
        )
        return _RESPONSE.dump_python(answer, mode="json")

    return ask


class RecordedModel(Model):
    """A model whose answers are recorded: asked the same again, as by code that runs again, it is not asked."""

    def __init__(self, ctx: WorkflowContext, asked: AskedModel) -> None:
        super().__init__()
        self._ctx = ctx
        self._asked = asked

    @property
    def model_name(self) -> str:
        """The tool that asks it."""
        return self._asked.name

    @property
    def system(self) -> str:
        """As pydantic-ai has it."""
        return "aetheris"

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Its recorded answer.

        Raises:
            ToolFailed: it gave none.
            Misuse: it would be asked more than 64 KiB.
        """
        answer = await self._ctx.call(
            self._asked.name,
            messages=_same_in_each_run(ModelMessagesTypeAdapter.dump_python(messages, mode="json")),
            settings=to_jsonable_python(model_settings or {}),
            parameters=_PARAMETERS.dump_python(model_request_parameters, mode="json", exclude_defaults=True),
        )
        return _RESPONSE.validate_python(answer)


class WorkflowToolset(AbstractToolset[Any]):
    """Tools of a workflow as an agent's own; `ctx.toolset` makes it."""

    def __init__(self, tools: Sequence[ModelTool]) -> None:
        self._tools = {one.name: one for one in tools}

    @property
    def id(self) -> None:
        """It is one body's."""
        return None

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:  # noqa: ARG002 - pydantic-ai's
        """All of them."""
        return {name: self._shown(one) for name, one in self._tools.items()}

    async def call_tool(
        self,
        name: str,
        tool_args: dict[str, Any],
        ctx: RunContext[Any],  # noqa: ARG002 - pydantic-ai's own signature
        tool: ToolsetTool[Any],  # noqa: ARG002 - so is this
    ) -> Any:
        """What the call came to.

        Raises:
            ModelRetry: the arguments are refused, and nothing was called: the model may correct them.
            ModelToolFailed: the call has failed; says whether it may have taken effect.
        """
        try:
            return await self._tools[name].call(tool_args)
        except Misuse as refused:
            raise ModelRetry(f"refused, and nothing was called: {refused}") from None
        except ToolFailed as failed:
            raise ModelToolFailed(f"{failed.reason}. {_NOTHING}") from None
        except OutcomeUnknown as unknown:
            raise ModelToolFailed(f"{unknown.reason}. {_UNKNOWN}") from None

    def _shown(self, one: ModelTool) -> ToolsetTool[Any]:
        definition = ToolDefinition(
            name=one.name, description=one.description or None, parameters_json_schema=dict(one.schema)
        )
        return ToolsetTool(toolset=self, tool_def=definition, max_retries=_CORRECTIONS, args_validator=_ANYTHING)


def _same_in_each_run(messages: list[Any]) -> list[Any]:
    """Messages without what is another in each run: at their own level, and at that of their parts."""
    return [_without(one) | {"parts": [_without(part) for part in one.get("parts", ())]} for one in messages]


def _without(said: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in said.items() if name not in _OTHER_EACH_TIME}
