"""The refund agents of other frameworks (examples/adapters), each in its locked environment, on the whole system.

Environments are made by uv from tests/adapters/NAME/uv.lock, outside of the clone, and kept; what is there is not
installed again. Aetheris' own packages come from the clone.
"""

import hashlib
import json
import os
import random
import re
import subprocess
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aetheris.cli import local
from aetheris.testing.scripted_model import ScriptedModel, running_model
from tests.testkit.attempts import fresh
from tests.testkit.policies import ALLOW_ALL, ruled_by
from tests.testkit.refund_agent_tools import UNSURE, tag_of
from tests.testkit.rig import Rig, running_rig
from tests.testkit.system import REPOSITORY

TOOLS = "tests.testkit.refund_agent_tools"
PATIENCE_S = 120.0
"""An agent's libraries alone take seconds to load."""
VICTIMS = (None, "executor-0", None, "ledger-0", None, "planner-0", None, "gateway-0", None, "executor-0", "prober-0")
"""What is killed beside the agent, in turn."""
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "aetheris" / "adapters"
SOURCES = [str(REPOSITORY / "libs" / one / "src") for one in ("sdk", "protocol")]
_ORDER = re.compile(r"Refund order ([\w-]+)")


class RefundScript(Mapping[str, Sequence[Mapping[str, Any]]]):
    """The model's answers to any goal that says `Refund order O`, in whatever words a framework wraps it.

    Once more where it is unsure: then it mails.
    """

    def __getitem__(self, goal: str) -> Sequence[Mapping[str, Any]]:
        found = _ORDER.search(goal)
        if found is None:
            raise KeyError(goal)
        order = found[1]
        refund = _called("refund", order=order, amount=5)
        mail = _called("send_mail", order=order, text="You get 5 back.")
        again = [refund, refund] if order.startswith(UNSURE) else []
        done = {"text": "It is done."}
        if goal.startswith("New task"):  # smolagents, whose model says by a tool that it is done
            done = _called("final_answer", answer="It is done.")
        return [refund, *again, mail, done]

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


@dataclass(frozen=True)
class FrameworkRig(Rig):
    """What agents ask is `model`; `env` is theirs."""

    model: ScriptedModel
    env: Mapping[str, str]

    @contextmanager
    def started(self, name: str, order: str, script: Path | None = None) -> "Generator[subprocess.Popen[str]]":
        """A framework's agent in a process of its own, or another `script`; it is killed at the end."""
        argv = [str(framework_python(name)), str(script or example_of(name)), order]
        with subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **self.env}
        ) as agent:
            try:
                yield agent
            finally:
                agent.kill()

    def run(self, name: str, order: str, tries: int = 1) -> str:
        """What the agent says last; where something isn't there yet it is started again, as often as that."""
        errors = ""
        for _ in range(tries):
            with self.started(name, order) as agent:
                out, errors = agent.communicate(timeout=PATIENCE_S)
            if agent.returncode == 0:
                return out.strip().splitlines()[-1]
        raise AssertionError(errors)

    def counted(self, order: str) -> list[int]:
        """Refunds and mails."""
        return [self.external.count(tag_of(one, order)) for one in ("refund", "send_mail")]

    def told(self, order: str) -> str:
        """All that the model was told at the end of an order's run."""
        last = next(one for one in reversed(self.model.requests) if order in str(one.body))
        return str(last.body["messages"])

    def jobs(self) -> set[str]:
        """Those of the list."""
        return {one["job_id"] for one in self.system.api.get("/jobs", params={"limit": 200}).json()["jobs"]}


@contextmanager
def running_framework_rig(folder: Path) -> Generator[FrameworkRig]:
    """Up, and down again."""
    env = {"AETHERIS_TOOLS": TOOLS, "AETHERIS_PROBE_BACKOFF_S": "0.05", **ruled_by(folder, ALLOW_ALL)}
    with running_model(RefundScript()) as (model, url), running_rig(folder, env) as rig:
        where = local.target(rig.system.data)
        yield FrameworkRig(
            rig.system,
            rig.external,
            model,
            {
                "AETHERIS_URL": where.url,
                "AETHERIS_TOKEN": where.token,
                "OPENAI_BASE_URL": url,
                "OPENAI_API_KEY": "none",
                "OPENAI_AGENTS_DISABLE_TRACING": "1",
                "CREWAI_DISABLE_TELEMETRY": "true",
                "MODEL": "apigee/openai/gpt-5",  # by which ADK speaks OpenAI's protocol without one more library
                "APIGEE_PROXY_URL": url,
                "PYTHONPATH": os.pathsep.join(SOURCES),
            },
        )


def example_of(name: str) -> Path:
    """The script of a framework's agent."""
    return REPOSITORY / "examples" / "adapters" / f"{name}_agent.py"


def framework_python(name: str) -> Path:
    """The interpreter of a framework's environment, which is made where it is missing."""
    project = REPOSITORY / "tests" / "adapters" / name
    lock = hashlib.sha256((project / "uv.lock").read_bytes()).hexdigest()[:16]
    environment = _CACHE / f"{name}-{lock}"
    python = environment / "bin" / "python"
    done = environment / ".synced"
    if not done.exists():
        base = (REPOSITORY / ".uv" / ".python").read_text().strip()
        own = ["--no-install-package", "aetheris-tool-sdk", "--no-install-package", "aetheris-protocol"]
        subprocess.run(
            [str(REPOSITORY / ".uv" / "bin" / "uv"), "sync", "--quiet", "--frozen", "--python", base, *own],
            cwd=project,
            env={**os.environ, "UV_PROJECT_ENVIRONMENT": str(environment), "UV_PYTHON_DOWNLOADS": "never"},
            check=True,
        )
        done.touch()
    return python


def killed_agent(rig: FrameworkRig, name: str, kills: int) -> None:
    """An order's agent is killed again and again, half of the times in its refund, half in its mail; each happens once.

    With it, in turn, a service of VICTIMS is killed.
    """
    order = fresh("o")
    before = rig.jobs()
    pauses = random.Random(order)  # noqa: S311 - no secret
    for number, what in enumerate(("refund", "send_mail")):
        held = rig.external.hold(what)
        for kill in range(kills // 2):
            with rig.started(name, order) as agent:
                if kill == 0:
                    rig.external.wait_for(1, tag_of(what, order), PATIENCE_S)
                else:
                    time.sleep(pauses.uniform(0.5, 3.0))
                victim = VICTIMS[(kill + number) % len(VICTIMS)]
                if victim is not None:
                    rig.system.kill(victim)
                agent.kill()
        held.unlink()
        rig.system.wait_ready()
        rig.system.wait_ended(rig.jobs() - before, PATIENCE_S)
    said = rig.run(name, order, tries=3)
    assert said == "It is done.", said
    assert rig.counted(order) == [1, 1]
    made = rig.jobs() - before
    assert len(made) == 2
    for job in made:
        assert rig.system.report(job)["violations"] == []


def _called(tool: str, **args: Any) -> dict[str, Any]:
    return {"calls": [{"tool": tool, "args": args}]}


def type_errors(name: str, folder: Path) -> str:
    """What pyright says of a framework's adapter and its example, beside the framework."""
    files = [
        REPOSITORY / "libs" / "sdk" / "src" / "aetheris" / "sdk" / "adapters" / f"{name}.py",
        example_of(name),
    ]
    config = {
        "include": [os.path.relpath(one, folder) for one in files],  # others it would pass over
        "extraPaths": SOURCES,
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        **dict.fromkeys(("reportMissingTypeStubs", "reportUnknownMemberType", "reportUnknownVariableType"), False),
        **dict.fromkeys(("reportUnknownArgumentType", "reportUntypedBaseClass"), False),
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(config))
    argv = [
        str(REPOSITORY / ".venv" / "bin" / "pyright"),
        "-p",
        str(folder),
        "--pythonpath",
        str(framework_python(name)),
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 and "No source files" not in done.stdout else done.stdout
