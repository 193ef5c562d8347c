"""The demo's outside: servers that count, tools that can be probed, an agent that pays twice (docs/demo.md)."""

import asyncio
import os
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from aetheris.rigs.demo import tools
from aetheris.rigs.demo.external_systems import DemoExternalSystems, EffectCounts, ExternalSystemError
from aetheris.rigs.demo.gate import Gate
from aetheris.rigs.demo.naive import run_naive
from aetheris.rigs.demo.naive_agent import run_agent
from aetheris.sdk import Found, NotFound, ProbeContext, ToolContext, Unknown
from aetheris.sdk.invoke import ask_probe, invoke
from aetheris.sdk.loader import load
from aetheris.sdk.outcomes import Permanent, Retryable, Succeeded
from aetheris.sdk.tools import AnyTool
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until

pytestmark = [pytest.mark.nightly, pytest.mark.real]


@pytest.fixture(scope="module")
def external(tmp_path_factory: pytest.TempPathFactory) -> Generator[DemoExternalSystems]:
    with DemoExternalSystems(tmp_path_factory.mktemp("outside")) as running:
        yield running


@pytest.fixture
def here(external: DemoExternalSystems, monkeypatch: pytest.MonkeyPatch) -> DemoExternalSystems:
    """The external servers, and the environment that the tools find it by."""
    for name, value in external.env.items():
        monkeypatch.setenv(name, value)
    return external


def context(key: str) -> ToolContext:
    return ToolContext(key, 0, "ab" * 32, "job", "node")


def asking(key: str) -> ProbeContext:
    return ProbeContext(key, "ab" * 32, "job", "node")


CALLS: list[tuple[AnyTool, Callable[[str], dict[str, Any]]]] = [
    (tools.refund, lambda order: {"order_id": order, "amount": 4200}),
    (tools.send_receipt, lambda order: {"to": "ada@example.org", "order_id": order, "amount": 4200}),
    (tools.file_issue, lambda order: {"order_id": order, "title": "Refund of order"}),
]


def test_the_tools_load_by_name() -> None:
    entries = {entry["name"]: entry for entry in load("aetheris.rigs.demo.tools").entries()}
    assert {name: (entry["effect_class"], entry["irreversible"]) for name, entry in entries.items()} == {
        "lookup_order": ("pure", False),
        "refund": ("probeable", True),
        "send_receipt": ("probeable", True),
        "file_issue": ("probeable", False),
    }


async def test_an_order_is_looked_up(here: DemoExternalSystems) -> None:
    here.place_order("o-look", 4200, "ada@example.org")
    expected = {"order_id": "o-look", "amount": 4200, "currency": "eur", "email": "ada@example.org"}
    assert await invoke(tools.lookup_order, {"order_id": "o-look"}, context("aetheris:j:n:0")) == Succeeded(expected)
    missing = await invoke(tools.lookup_order, {"order_id": "o-none"}, context("aetheris:j:n:0"))
    assert missing == Permanent("there is no such order")


@pytest.mark.parametrize(("called", "args"), CALLS, ids=lambda one: getattr(one, "name", ""))
async def test_what_a_tool_did_its_probe_finds(
    here: DemoExternalSystems, called: AnyTool, args: Callable[[str], dict[str, Any]]
) -> None:
    order, key = fresh(f"o-{called.name}"), f"aetheris:{fresh('job_1.a-b')}:{called.name}:1"
    here.place_order(order, 4200, "ada@example.org")
    assert isinstance(await ask_probe(called, asking(key), 10), NotFound)

    outcome = await invoke(called, args(order), context(key))
    assert isinstance(outcome, Succeeded)
    assert [change.external_ref for change in outcome.changes] == [key]

    answer = await ask_probe(called, asking(key), 10)
    assert isinstance(answer, Found)
    assert (answer.result, answer.external_id) == (outcome.result, outcome.external_id)
    for other in (f"{key}0", key[:-2], key.replace("_", "x")):
        assert isinstance(await ask_probe(called, asking(other), 10), NotFound)


@pytest.mark.parametrize(("called", "args"), CALLS, ids=lambda one: getattr(one, "name", ""))
async def test_the_outside_deduplicates_nothing(
    here: DemoExternalSystems, called: AnyTool, args: Callable[[str], dict[str, Any]]
) -> None:
    """Else a count of one would prove nothing."""
    order, key = fresh(f"o-twice-{called.name}"), f"aetheris:{fresh('twice')}:{called.name}:0"
    here.place_order(order, 9000, "ada@example.org")
    before = here.counts()
    first = await invoke(called, args(order), context(key))
    second = await invoke(called, args(order), context(key))
    assert isinstance(first, Succeeded)
    assert isinstance(second, Succeeded)
    assert first.result == second.result
    assert sum(vars(here.counts(order)).values()) == 2
    assert sum(vars(here.counts()).values()) == sum(vars(before).values()) + 2


async def test_counts_go_past_one_page(here: DemoExternalSystems) -> None:
    order, job = fresh("o-pages"), fresh("pages")
    here.place_order(order, 100_000, "ada@example.org")
    args = {"order_id": order, "amount": 1}
    calls = [invoke(tools.refund, args, context(f"aetheris:{job}:n:{n}")) for n in range(120)]
    assert all(isinstance(outcome, Succeeded) for outcome in await asyncio.gather(*calls))
    assert here.counts(order) == EffectCounts(120, 0, 0)
    for n in (0, 60, 119):
        assert isinstance(await ask_probe(tools.refund, asking(f"aetheris:{job}:n:{n}"), 10), Found)


@pytest.mark.parametrize(("called", "args"), CALLS, ids=lambda one: getattr(one, "name", ""))
async def test_an_outside_that_is_gone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, called: AnyTool, args: Callable[[str], dict[str, Any]]
) -> None:
    """A call that could not be sent had no effect; a probe that could not ask knows nothing."""
    nowhere = {
        "DEMO_STRIPE_URL": "http://127.0.0.1:9",
        "DEMO_SMTP": "127.0.0.1:9",
        "DEMO_MAILDIR": str(tmp_path / "none"),
        "DEMO_TRACKER_URL": "http://127.0.0.1:9",
    }
    for name, value in nowhere.items():
        monkeypatch.setenv(name, value)
    assert isinstance(await invoke(called, args("o-1"), context("aetheris:j:n:0")), Retryable)
    assert isinstance(await ask_probe(called, asking("aetheris:j:n:0"), 10), Unknown)


async def test_a_gate_holds_the_answer_of_an_effect(here: DemoExternalSystems, monkeypatch: pytest.MonkeyPatch) -> None:
    order, key = fresh("o-gate"), f"aetheris:{fresh('gate')}:n:0"
    here.place_order(order, 4200, "ada@example.org")
    with Gate(here.ports["stripe"]) as gate:
        monkeypatch.setenv("DEMO_STRIPE_URL", f"http://127.0.0.1:{gate.port}")
        gate.hold_after(b"POST /v1/refunds")
        args = {"order_id": order, "amount": 4200}
        call = asyncio.create_task(invoke(tools.refund, args, context(key)))
        assert await asyncio.to_thread(gate.wait_held, 30)
        await asyncio.to_thread(until, lambda: here.counts(order).refunds == 1, 30)
        assert isinstance(await ask_probe(tools.refund, asking(key), 10), Found)
        assert not call.done()
        gate.open()
        assert isinstance(await asyncio.wait_for(call, 30), Succeeded)


def test_the_naive_agent_does_everything_twice(external: DemoExternalSystems, tmp_path: Path) -> None:
    order = fresh("o-naive")
    external.place_order(order, 4200, "ada@example.org")
    assert run_naive(external, tmp_path, order) == EffectCounts(refunds=2, mails=2, issues=2)


def test_left_alone_the_naive_agent_does_everything_once(here: DemoExternalSystems, tmp_path: Path) -> None:
    """So it is the kills that double its calls."""
    order = fresh("o-alone")
    here.place_order(order, 4200, "ada@example.org")
    run_agent(tmp_path / "progress.json", order)
    run_agent(tmp_path / "progress.json", order)
    assert here.counts(order) == EffectCounts(refunds=1, mails=1, issues=1)


def test_a_world_that_cannot_start_says_where_to_look(tmp_path: Path) -> None:
    (tmp_path / "tracker").write_text("no folder")
    with (
        pytest.raises(ExternalSystemError, match=r"tracker did not start: see .*tracker\.log"),
        DemoExternalSystems(tmp_path),
    ):
        pass


def test_the_worlds_processes_end_with_it(tmp_path: Path) -> None:
    with DemoExternalSystems(tmp_path) as running:
        pids = running.pids
        assert all(os.path.exists(f"/proc/{pid}") for pid in pids.values())
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids.values())
