"""Models: which there are, how a prompt looks on the wire, and what a provider's failures come to."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import pytest

from aetheris.models import Busy, ModelRefused, Models, ModelsInvalid, ModelSpec, ShownTool, providers, read_models
from aetheris.protocol.plan.prompts import Prompt, Turn
from aetheris.protocol.planning.answers import understood
from aetheris.testing.scripted_model import AFTER_THE_SCRIPT, ScriptedModel, running_model

SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}}, "additionalProperties": False}
TOOLS = [ShownTool("look.up", "Finds one.", SCHEMA), ShownTool("look_up", "Another.", SCHEMA)]
SCRIPT: dict[str, list[dict[str, Any]]] = {
    "find": [
        {"text": "I look.", "calls": [{"tool": "look_up", "args": {"id": 1}}, {"tool": "nope", "args": "{bad"}]},
        {"text": "Found."},
    ],
    "busy": [{"status": 503}],
    "too many": [{"status": 429}],
    "no key": [{"status": 401}],
    "no such": [{"status": 404}],
    "html": [{"body": "<html>"}],
    "no choices": [{"body": '{"choices": []}'}],
    "slow": [{"text": "late", "delay_s": 5}],
}


@pytest.fixture
def served() -> Generator[tuple[ScriptedModel, str]]:
    with running_model(SCRIPT) as found:
        yield found


@pytest.fixture
async def models(served: tuple[ScriptedModel, str]) -> AsyncGenerator[Models]:
    fast = ModelSpec(
        name="fast", model="openai-chat:m", base_url=served[1], input_usd_per_mtok=1, output_usd_per_mtok=2
    )
    short = fast.model_copy(update={"name": "short", "timeout_s": 0.2})
    made = Models({"fast": fast, "short": short})
    yield made
    await made.close()


async def test_a_conversation_goes_out_whole_and_the_answer_comes_back(
    models: Models, served: tuple[ScriptedModel, str]
) -> None:
    wanted = Prompt(model="fast", prompt="find", system="Be brief.", max_tokens=50, temperature=0.2, seed=7)
    first = await models.ask(wanted, TOOLS)
    assert (first.reply.text, first.reply.calls) == ("I look.", [("look.up", '{"id": 1}'), ("nope", "{bad")])
    used = first.usage
    assert used["cost_usd"] == pytest.approx((used["input_tokens"] + 2 * used["output_tokens"]) / 1_000_000)
    answer = understood(first.reply, {tool.name: tool.schema for tool in TOOLS})
    second = await models.ask(
        Prompt(model="fast", prompt="find", turns=(Turn(answer=answer, results=({"found": 1},)),)), TOOLS
    )
    assert (second.reply.text, second.reply.calls) == ("Found.", [])
    asked, again = (request.body for request in served[0].requests)
    assert [one["content"] for one in asked["messages"]] == ["Be brief.", "find"]
    assert (asked["max_tokens"] if "max_tokens" in asked else asked["max_completion_tokens"]) == 50
    assert (asked["temperature"], asked["seed"]) == (0.2, 7)
    assert not {"temperature", "seed"} & again.keys()
    assert [one["function"]["name"] for one in asked["tools"]] == ["look_up", "look_up_2"]
    reported = [one for one in again["messages"] if one["role"] == "tool"]
    assert [(one["tool_call_id"], one["content"][:22]) for one in reported] == [
        ("call_1_1", '{"found": 1}'),
        ("call_1_2", "This call was not made"),
    ]


async def test_first_questions_at_the_same_time_share_their_connections(
    models: Models, served: tuple[ScriptedModel, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    real = providers.Provider

    def counted(spec: ModelSpec) -> providers.Provider:
        made.append(spec.name)
        return real(spec)

    monkeypatch.setattr(providers, "Provider", counted)
    answers = await asyncio.gather(*(models.ask(Prompt(model="fast", prompt="other"), []) for _ in range(5)))
    assert {answer.reply.text for answer in answers} == {AFTER_THE_SCRIPT["text"]}
    assert (made, served[0].calls) == (["fast"], 5)


@pytest.mark.parametrize(
    ("goal", "model", "error"),
    [
        ("busy", "fast", Busy),
        ("too many", "fast", Busy),
        ("html", "fast", Busy),
        ("no choices", "fast", Busy),
        ("slow", "short", Busy),
        ("no key", "fast", ModelRefused),
        ("no such", "fast", ModelRefused),
        ("find", "unknown", ModelRefused),
    ],
)
async def test_a_failure_is_one_request_and_says_whether_to_ask_again(
    goal: str, model: str, error: type[Exception], models: Models, served: tuple[ScriptedModel, str]
) -> None:
    with pytest.raises(error) as failed:
        await models.ask(Prompt(model=model, prompt=goal), [])
    assert goal not in str(failed.value)
    sent = {"unknown": (0,), "short": (0, 1)}.get(model, (1,))
    assert served[0].calls in sent, "nothing is sent twice"


def test_the_configuration_names_what_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "models.toml"
    file.write_text('[[models]]\nname = "fast"\nmodel = "openai-chat:m"\nbase_url = "http://x/v1"\n')
    found = read_models(["anthropic:claude", str(file)])
    assert {name: spec.model for name, spec in found.items()} == {
        "anthropic:claude": "anthropic:claude",
        "fast": "openai-chat:m",
    }
    wrong = {
        '[[models]]\nname = "a b"\nmodel = "x:y"': "models[0]: name",
        '[[models]]\nname = "a"\nmodel = "m"': "provider:model",
        '[[models]]\nname = "a"\nmodel = "x:y"\napi_key_env = "K"': "only with base_url",
        '[[models]]\nname = "a"\nmodel = "x:y"\nkey = "sk-secret"': "models[0]: key",
        "models = 1": "models.toml:1: models: is no [[models]]",
        '[[modles]]\nname = "a"': "models.toml:1: modles: there is no such key; did you mean models?",
        "": "models: is missing",
        '[[models]]\nname = "a"\nmodel = "opnai:m"': "knows no provider opnai; did you mean openai?",
        "[[": "is not TOML",
    }
    for text, why in wrong.items():
        file.write_text(text)
        with pytest.raises(ModelsInvalid) as refused:
            read_models([str(file)])
        assert why in str(refused.value)
        assert "sk-secret" not in str(refused.value)
    for entries in (["gpt-5"], ["groq:b", "groq:b"], ["opnai:m"], [str(tmp_path / "none.toml")]):
        with pytest.raises(ModelsInvalid):
            read_models(entries)


def test_an_executor_without_models_imports_nothing_of_them() -> None:
    code = (
        "import json, sys, aetheris.tool_executor.app, aetheris.planner.app, aetheris.ledger.app, aetheris.gateway.app;"
        "print(json.dumps([n for n in ('pydantic_ai', 'openai', 'anthropic', 'aetheris.models') if n in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []
