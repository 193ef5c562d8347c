"""`aetheris upgrade check`: what this version would refuse, or let stand, of what an earlier one has written."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from aetheris.cli import streamfile
from aetheris.cli.app import app
from aetheris.cli.upgrade_check import open_job, policy_in_force, rules_and_services
from aetheris.proofs import RawRecord
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.envelope import draft
from aetheris.protocol.messages.event_base import KNOWN_RULES
from aetheris.sdk import tool
from aetheris.sdk.workflows import WorkflowContext, workflow
from aetheris.testing import MemorySystem
from tests.testkit.golden import FOLDER
from tests.testkit.refused import write

STREAMS = sorted(FOLDER.glob("*/*.jsonl"))
RUN = next(path for path in STREAMS if path.stem == "a-run")


def checked(folder: Path, *options: str, data: Path) -> tuple[int, dict[str, Any]]:
    done = CliRunner().invoke(app, ["upgrade", "check", str(folder), "--data", str(data), "--json", *options])
    return done.exit_code, json.loads(done.stdout)


def blocking(told: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["subject"], one["detail"]) for one in told["findings"] if one["blocks"]]


def saying(record: RawRecord, **more: Any) -> RawRecord:
    return replace(record, value=json.dumps(json.loads(record.value) | more).encode())


def of_type(name: str) -> Callable[[RawRecord], bool]:
    return lambda record: dict(record.headers)["ce_type"].split(b".")[2] == name.encode()


@pytest.fixture(name="folder")
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    found = tmp_path / "exported"
    found.mkdir()
    return found


def altered(folder: Path, name: str, change: Callable[[RawRecord], RawRecord], *, up_to: int | None = None) -> None:
    """A real job's stream, as far as it went, in which records of a type are otherwise."""
    records = [*streamfile.read(RUN).raw()][:up_to]
    write(folder / "job.jsonl", [change(one) if of_type(name)(one) else one for one in records])


def test_what_earlier_versions_wrote_goes_on(folder: Path, tmp_path: Path) -> None:
    for path in STREAMS:
        (folder / f"{path.parent.name}-{path.name}").write_bytes(path.read_bytes())
    code, told = checked(folder, data=tmp_path / "data")
    assert (code, blocking(told)) == (0, [])
    assert told["findings"][-1]["detail"].startswith(f"{len(STREAMS)} read, {len(STREAMS)} of them go on")


@pytest.mark.parametrize(
    ("name", "says", "told_of"),
    [
        ("tool_invocation_finished", {"outcome": "undone"}, "a value of outcome that this version does not know"),
        ("job_created", {"rules": 7}, "under rules that this version does not know"),
    ],
)
def test_a_job_that_this_version_would_let_stand_is_named(
    folder: Path, tmp_path: Path, name: str, says: dict[str, Any], told_of: str
) -> None:
    altered(folder, name, lambda record: saying(record, **says))
    code, told = checked(folder, data=tmp_path / "data")
    ((subject, detail),) = blocking(told)
    assert (code, subject) == (1, "jobs")
    assert told_of in detail


def test_a_plan_that_is_none_any_more_is_named(folder: Path, tmp_path: Path) -> None:
    altered(folder, "plan_generated", lambda record: saying(record, task_graph={"nodes": []}), up_to=3)
    code, told = checked(folder, data=tmp_path / "data")
    assert (code, blocking(told)) == (1, [("jobs", "job: its plan is none to this version")])


def test_an_empty_folder_proves_nothing(folder: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["upgrade", "check", str(folder), "--data", str(tmp_path / "data")])
    assert (done.exit_code, "no .jsonl or .zip" in done.stderr) == (2, True)


def test_a_policy_that_this_version_refuses_is_named_with_its_place(folder: Path, tmp_path: Path) -> None:
    (folder / "a.jsonl").write_bytes(RUN.read_bytes())
    Path("policy.toml").write_text('[[rules]]\nname = "r"\ntools = ["*"]\neffect = "perhaps"\n')
    Path("aetheris.toml").write_text('policy = "policy.toml"\n')
    code, told = checked(folder, data=tmp_path / "data")
    ((subject, detail),) = blocking(told)
    assert (code, subject) == (1, "policy")
    assert "policy.toml" in detail


def test_code_that_is_none_is_bad_usage(folder: Path, tmp_path: Path) -> None:
    argv = ["upgrade", "check", str(folder), "--code", "nowhere:handle", "--data", str(tmp_path / "data")]
    done = CliRunner().invoke(app, argv)
    assert (done.exit_code, "nowhere" in done.stderr) == (2, True)


@tool(effect_class="idempotent")
async def pay(order: str, amount: int) -> str:
    return f"{order}-{amount}"


@workflow("shop", tools=[pay])
async def as_it_was(ctx: WorkflowContext, order: str) -> str:
    await ctx.using(id="pay").call(pay, order=order, amount=1)
    await ctx.signal("go-on")
    return order


@workflow("shop", tools=[pay])
async def changed(ctx: WorkflowContext, order: str) -> str:
    await ctx.using(id="pay").call(pay, order=order, amount=3)
    await ctx.signal("go-on")
    return order


@tool(name="ship", version="2", effect_class="idempotent")
async def ship(order: str) -> str:
    return order


@tool(name="ship", version="3", effect_class="idempotent")
async def ship_later(order: str) -> str:
    return order


@tool(name="ship", version="2", effect_class="idempotent")
async def ship_elsewhere(order: str, country: str) -> str:
    return order + country


def recorded(job: Any) -> list[Record]:
    """As it lies in the log."""
    records: list[Record] = []
    for offset, event in enumerate(job.log):
        made = draft(Topic.JOBS_EVENTS, event, key=event.job_id, id=f"e{offset}", source="test", time="")
        records.append(Record(Topic.JOBS_EVENTS, 0, offset, 0, made.key, made.headers, made.value))
    return records


def test_a_tool_that_an_open_job_is_pinned_to_and_that_is_served_no_more_is_named() -> None:
    wait = {"id": "wait", "kind": "wait", "wait": {"key": "go-on"}}
    pinned = {"id": "ship", "kind": "tool", "tool": "ship", "args": {"order": "o"}, "depends_on": ["wait"]}
    records = recorded(MemorySystem(ship).run({"nodes": [wait, pinned]}))
    assert [*open_job("j", records, {}, {}, [ship, ship_later])] == []
    (gone,) = open_job("j", records, {}, {}, [ship_later])
    assert (gone.subject, gone.blocks, gone.detail) == ("tools", True, "j: ship@2 is not among these tools")
    (other,) = open_job("j", records, {}, {}, [ship_elsewhere])
    assert (other.blocks, other.detail) == (True, "j: ship@2 takes other arguments here")
    assert [*open_job("j", records, {}, {}, [pay])] == [], "who serves it may have it from elsewhere"


def test_a_workflow_whose_new_code_parts_from_an_open_job_is_named() -> None:
    job = MemorySystem(as_it_was, pay).run(
        {"nodes": [{"id": "workflow", "kind": "workflow", "tool": "shop", "args": {"order": "o"}}]}
    )
    records = recorded(job)
    assert [*open_job("j", records, {"shop": as_it_was}, {})] == []
    (parts,) = open_job("j", records, {"shop": changed}, {})
    assert (parts.subject, parts.blocks, "workflow.pay" in parts.detail) == ("workflows", True, True)
    (unknown,) = open_job("j", records, {}, {})
    assert (unknown.blocks, unknown.detail) == (False, "j: shop was not compared")


def told(version: int, *services: dict[str, Any]) -> dict[str, Any]:
    return {"version": version, "services": services}


def test_rules_in_force_that_this_version_does_not_know_stop_it() -> None:
    known = max(KNOWN_RULES)
    old = {"service": "planner", "name": "planner-0", "version": "0.0.9", "known": [known]}
    found = [*rules_and_services(told(known, old), "0.1.0")]
    assert not any(one.blocks for one in found)
    assert "planner/planner-0: 0.0.9, knows rules 1" in {one.detail for one in found}
    silent = old | {"version": None}
    assert "doesn't say" in [*rules_and_services(told(known, silent), "0.1.0")][1].detail
    refused, *_ = rules_and_services(told(known + 1, old), "0.1.0")
    assert (refused.subject, refused.blocks) == ("rules", True)
    assert "already" in [*rules_and_services(told(known, old), "0.0.9")][-1].detail


def test_an_activated_policy_that_this_version_refuses_stops_it() -> None:
    good = '[[rules]]\nname = "r"\ntools = ["*"]\neffect = "allow"\n'
    assert not policy_in_force({"active": None}).blocks
    assert not policy_in_force({"active": {"number": 3, "policy": good}}).blocks
    refused = policy_in_force({"active": {"number": 3, "policy": good.replace("allow", "perhaps")}})
    assert (refused.blocks, refused.detail.startswith("activation 3 is refused")) == (True, True)
