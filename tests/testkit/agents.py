"""A system whose goals are planned by the scripted model, on the external server that counts."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aetheris.testing.scripted_model import Script, ScriptedModel, running_model
from tests.testkit.rig import Rig, running_rig

MODEL = "fast"


@dataclass(frozen=True)
class AgentsRig(Rig):
    """Its planner asks `model`."""

    model: ScriptedModel
    models_file: Path

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
def running_agents(folder: Path, script: Script, env: Mapping[str, str] | None = None) -> Generator[AgentsRig]:
    """Everything up, and down again."""
    with running_model(script) as (model, url):
        models = write_models(folder / "models.toml", url, input_usd_per_mtok=1.0, output_usd_per_mtok=2.0)
        with running_rig(folder, {"AETHERIS_MODELS": str(models), **(env or {})}) as rig:
            yield AgentsRig(rig.system, rig.external, model, models)
