"""Asking a model once. What speaks to providers is imported at the first request: it takes a second or two."""

import asyncio
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from aetheris.models.config import ModelSpec
from aetheris.models.exchange import ModelRefused, PricedReply, ShownTool
from aetheris.protocol.plan.prompts import Prompt

if TYPE_CHECKING:
    from aetheris.models.providers import Provider


class Models:
    """The models of one process."""

    def __init__(self, specs: Mapping[str, ModelSpec]) -> None:
        self._specs = dict(specs)
        self._providers: dict[str, Provider] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._specs

    @property
    def specs(self) -> Sequence[ModelSpec]:
        """All of them."""
        return tuple(self._specs.values())

    async def prepare(self) -> None:
        """Import what speaks to providers, beside the event loop."""
        await asyncio.to_thread(import_module, "aetheris.models.providers")

    async def close(self) -> None:
        """Close the connections."""
        for provider in self._providers.values():
            await provider.close()
        self._providers.clear()

    async def ask(self, prompt: Prompt, tools: Sequence[ShownTool]) -> PricedReply:
        """One request, sent once.

        Raises:
            NotAnswered.
        """
        spec = self._specs.get(prompt.model)
        if spec is None:
            raise ModelRefused(f"no model {prompt.model} is configured")
        if spec.name not in self._providers:
            await self.prepare()  # others may come here meanwhile: one of them makes it
        if spec.name not in self._providers:
            self._providers[spec.name] = _provider(spec)
        return await self._providers[spec.name].ask(prompt, tools)


def _provider(spec: ModelSpec) -> "Provider":
    # imported where a model is asked, and nowhere else
    from aetheris.models.providers import Provider  # noqa: PLC0415

    return Provider(spec)
