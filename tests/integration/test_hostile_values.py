"""Whatever a tool returns, raises or names is recorded so that every service reads it; nobody else is held up."""

from collections.abc import Generator
from typing import Any

import pytest

from tests.testkit.attempts import fresh
from tests.testkit.external_server import ExternalServer
from tests.testkit.policies import ALLOW_REST, ruled_by
from tests.testkit.rig import Rig, running_rig
from tests.testkit.system import System

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

PATIENCE_S = 90.0
POLICY = '[[rules]]\nname = "ask"\ntools = ["publish"]\neffect = "approval"\nself_approval = true\n'


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
    assert system.api.post("/ecs/respond", json=body).status_code == 200
    system.wait_status(job, "completed", PATIENCE_S)
    assert external.count(tag) == 1
    system.verified(job)
