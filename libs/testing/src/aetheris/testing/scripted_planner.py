"""Nodes that ask a model, answered by a script: what a goal comes to when the model says just this."""

from collections.abc import Mapping
from typing import Any

from aetheris.protocol.messages.commands import ModelEntry
from aetheris.protocol.plan.prompts import Prompt
from aetheris.protocol.planning.answers import ModelReply, understood
from aetheris.sdk.loader import Toolbox
from aetheris.sdk.outcomes import Outcome, Retryable, Succeeded
from aetheris.testing.scripted_model import AFTER_THE_SCRIPT, ANY, Script

MODEL = "scripted"


class ScriptedPlanner:
    """Gives the answers of a script in the place of a model; no HTTP, no tokens."""

    def __init__(self, script: Script, toolbox: Toolbox) -> None:
        self._script = script
        self._toolbox = toolbox

    def registry(self) -> list[ModelEntry]:
        """The one model that there is."""
        return [ModelEntry(name=MODEL, provider_model=MODEL)]

    def refuses(self, args: Mapping[str, Any]) -> None:
        """Nothing is refused."""

    async def answer(self, args: Mapping[str, Any]) -> Outcome:
        """Answer number n to a question that holds n earlier answers."""
        prompt = Prompt.model_validate(args)
        answers = self._script.get(str(prompt.prompt), self._script.get(ANY, ()))
        body = answers[len(prompt.turns)] if len(prompt.turns) < len(answers) else AFTER_THE_SCRIPT
        if "status" in body:
            return Retryable(f"HTTP {body['status']}")
        schemas = {name: self._toolbox.get(name, offer.version).schema for name, offer in prompt.tools.items()}
        calls = [(call["tool"], call.get("args", {})) for call in body.get("calls", ())]
        answer = ModelReply(MODEL, str(body.get("text") or ""), calls)
        return Succeeded(understood(answer, schemas, graph=prompt.planning == "graph"))
