"""A system whose goals are planned by the scripted model, on the outside server that counts."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aetheris.testing.scripted_model import Script, ScriptedModel, running_model
from tests.testkit.outside import Outside, running_outside
from tests.testkit.system import System, running_system

MODEL = "fast"


@dataclass(frozen=True)
class World:
    system: System
    outside: Outside
    model: ScriptedModel
    models_file: Path

    def submit(self, goal: str, tools: Sequence[str] = ("poke_*",), **more: Any) -> str:
        """Submit a goal; the job's id."""
        answer = self.system.api.post("/jobs", json={"goal": goal, "tools": list(tools), **more})
        assert answer.status_code == 202, answer.text
        return answer.json()["job_id"]

    def events(self, job: str) -> list[dict[str, Any]]:
        return self.system.api.get(f"/jobs/{job}/events").json()

    def effects(self, job: str) -> list[dict[str, Any]]:
        """The effect log."""
        return self.system.api.get(f"/jobs/{job}/effects").json()["effects"]

    def outcome(self, job: str) -> str:
        """The outcome_hash of a job that holds."""
        report = self.system.verified(job)
        return report["outcome_hash"]


def write_models(path: Path, url: str, **more: Any) -> Path:
    """The file that AETHERIS_MODELS names."""
    fields: Mapping[str, Any] = {"name": MODEL, "model": "openai-chat:scripted", "base_url": url, **more}
    lines = [f"{name} = {value!r}" if isinstance(value, str) else f"{name} = {value}" for name, value in fields.items()]
    path.write_text("\n".join(["[[models]]", *lines, ""]))
    return path


@contextmanager
def running_agents(folder: Path, script: Script, **env: str) -> Generator[World]:
    """Everything up, and down again."""
    with running_outside(folder / "outside") as outside, running_model(script) as (model, url):
        models = write_models(folder / "models.toml", url, input_usd_per_mtok=1.0, output_usd_per_mtok=2.0)
        given = {"AETHERIS_TOOLS": "tests.testkit.outside_tools", "AETHERIS_MODELS": str(models), **env}
        with running_system(folder / "data", given | outside.env) as system:
            yield World(system, outside, model, models)
