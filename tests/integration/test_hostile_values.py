"""Whatever a tool returns, raises or names is recorded so that every service reads it; nobody else is held up."""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from aetheris.cli.app import app
from tests.testkit.attempts import fresh
from tests.testkit.bundles import opinions
from tests.testkit.external_server import ExternalServer
from tests.testkit.policies import ALLOW_REST, ruled_by
from tests.testkit.rig import Rig, running_rig
from tests.testkit.system import System

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

PATIENCE_S = 90.0
POLICY = '[[rules]]\nname = "ask"\ntools = ["publish", "weigh"]\neffect = "approval"\nself_approval = true\n'


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[Rig]:
    folder = tmp_path_factory.mktemp("hostile")
    env = {"AETHERIS_TOOLS": "tests.testkit.hostile_tools", **ruled_by(folder, POLICY + ALLOW_REST)}
    with running_rig(folder, env) as rig:
        yield rig


def check_alive(system: System) -> None:
    """Every partition goes on: a job in each of them ends."""
    jobs = [system.submit({"id": "a", "tool": "report", "args": {"size": 1}}) for _ in range(32)]
    system.wait_ended(jobs, PATIENCE_S)


@pytest.mark.parametrize(
    ("tool", "args", "status"),
    [
        ("deep", {"levels": 65}, "completed"),
        ("deep", {"levels": 250}, "completed"),
        ("deep", {"levels": 50_000}, "completed"),
        ("named", {"kind": "long"}, "completed"),
        ("named", {"kind": "surrogate"}, "completed"),
        ("fails", {}, "failed"),
    ],
    ids=["65 deep", "250 deep", "50,000 deep", "long", "surrogate", "fails"],
)
def test_it_is_called_once_and_recorded(
    system: System, external: ExternalServer, tool: str, args: dict[str, Any], status: str
) -> None:
    tag = fresh(f"hostile-{tool}")
    job = system.submit({"id": "a", "tool": tool, "args": {"tag": tag, **args}})
    system.wait_status(job, status, PATIENCE_S)
    assert external.count(tag) == 1
    system.verified(job)
    check_alive(system)


def test_arguments_of_any_size_wait_for_a_human(system: System, external: ExternalServer) -> None:
    tag = fresh("publish")
    job = system.submit(
        {"id": "big", "tool": "report", "args": {"size": 600_000}},
        {"id": "out", "tool": "publish", "args": {"tag": tag, "text": {"$ref": "big#/text"}}},
    )
    asked = system.wait_asked(job, PATIENCE_S)
    check_alive(system)
    request = system.api.get(f"/ecs/status/{asked['request_id']}").json()
    shown = request["request"]["context"]["arguments"]["text"]
    assert shown["$left_out"]["bytes"] == 600_002
    body = {"request_id": asked["request_id"], "action": "approve"}
    assert system.api.post("/ecs/respond", json=body, headers=system.approver).status_code == 200
    system.wait_status(job, "completed", PATIENCE_S)
    assert external.count(tag) == 1
    system.verified(job)


@pytest.mark.parametrize("amount", [1e20, 2.0**53, 123456789012345678.0, -1e20, 1e21, 5e-324])
def test_a_whole_float_that_no_integer_may_be_is_asked_about_sent_and_proven_as_it_is(
    system: System, amount: float, tmp_path: Path
) -> None:
    """Its canonical form has no fraction and no exponent, and is longer than integers may be."""
    job = system.submit({"id": "a", "tool": "weigh", "args": {"tag": fresh("float"), "amount": amount}})
    request = system.wait_asked(job, PATIENCE_S)["request_id"]
    shown = system.api.get(f"/ecs/status/{request}").json()["request"]["context"]["arguments"]["amount"]
    assert (shown, type(shown)) == (amount, float)
    body = {"request_id": request, "action": "approve"}
    assert system.api.post("/ecs/respond", json=body, headers=system.approver).status_code == 200
    system.wait_status(job, "completed", PATIENCE_S)
    kept = str(int(amount)) if 2**53 <= abs(amount) < 1e21 else amount  # docs/tools.md, "What a result may hold"
    assert system.job(job)["result"] == {"a": {"amount": kept, "is_whole": False}}
    system.verified(job)
    done = CliRunner().invoke(app, ["replay", job, "--data", str(system.data)])
    assert done.exit_code == 0, done.output
    system.wait_sealed(job)
    bundle = system.api.get(f"/jobs/{job}/evidence").raise_for_status().content
    assert [one["ok"] for one in opinions(system, bundle, tmp_path)] == [True, True]
