"""Nodes of kind llm: a prompt, asked once; imported only where models are configured (docs/models.md)."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from aetheris.models import Busy, Models, NotAnswered, ShownTool, read_models
from aetheris.protocol.messages.commands import ModelEntry
from aetheris.protocol.messages.event_values import Outcome
from aetheris.protocol.plan.prompts import Offer, Prompt
from aetheris.protocol.planning.answers import understood
from aetheris.sdk.loader import Toolbox
from aetheris.sdk.outcomes import Outcome as Said
from aetheris.sdk.outcomes import Permanent, Retryable, Succeeded
from aetheris.sdk.tools import AnyTool
from aetheris.tool_executor.core.reports import NOT_EXECUTED
from aetheris.tool_executor.core.tries import CallRefusal


class ModelCaller:
    """Asks models, and shows them the tools of this process as they are pinned."""

    def __init__(self, models: Models, toolbox: Toolbox) -> None:
        self._models = models
        self._tools: dict[tuple[str, str], AnyTool] = {(tool.name, tool.version): tool for tool in toolbox}

    def registry(self) -> Sequence[ModelEntry]:
        """What is registered of each model."""
        return [ModelEntry(name=one.name, provider_model=one.model, priced=one.priced) for one in self._models.specs]

    async def prepare(self) -> None:
        """Import what speaks to providers, before the first question."""
        await self._models.prepare()

    async def close(self) -> None:
        """Close the connections to models."""
        await self._models.close()

    def refuses(self, args: Mapping[str, Any]) -> CallRefusal | None:
        """Why the question can't be asked here."""
        try:
            prompt = Prompt.model_validate(args)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False, include_context=False)[0]
            return CallRefusal(Outcome.PERMANENT, f"invalid_args: /{'/'.join(map(str, first['loc']))}: {first['type']}")
        if prompt.model not in self._models:
            return CallRefusal(Outcome.RETRYABLE, f"{NOT_EXECUTED}: model missing", is_missing=True)
        if any(self._pinned(name, offer) is None for name, offer in prompt.tools.items()):
            return CallRefusal(Outcome.RETRYABLE, f"{NOT_EXECUTED}: tool version missing", is_missing=True)
        return None

    async def answer(self, args: Mapping[str, Any]) -> Said:
        """One question, asked once; the answer as it is recorded, whatever the model said."""
        prompt = Prompt.model_validate(args)
        pinned = {name: self._pinned(name, offer) for name, offer in prompt.tools.items()}
        tools = {name: tool for name, tool in pinned.items() if tool is not None}
        shown = [ShownTool(name, inspect.getdoc(tool.function) or "", tool.schema) for name, tool in tools.items()]
        try:
            asked = await self._models.ask(prompt, shown)
        except Busy as busy:
            return Retryable(busy.reason)
        except NotAnswered as refused:
            return Permanent(refused.reason)
        schemas = {name: tool.schema for name, tool in tools.items()}
        return Succeeded(understood(asked.reply, schemas, graph=prompt.planning == "graph"), usage=asked.usage)

    def _pinned(self, name: str, offer: Offer) -> AnyTool | None:
        """The tool of exactly that version and schema."""
        tool = self._tools.get((name, offer.version))
        return tool if tool is not None and tool.schema_hash == offer.schema_hash else None


def asking(entries: Sequence[str], toolbox: Toolbox) -> ModelCaller:
    """Raises: ModelsInvalid: AETHERIS_MODELS can't be used."""
    return ModelCaller(Models(read_models(entries)), toolbox)
