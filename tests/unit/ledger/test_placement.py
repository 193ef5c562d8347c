"""Calls whose tool no executor serves wait, and the log says so once; grants name the pool that serves them."""

from typing import Any

import pytest

from aetheris.protocol.fold.state import KeyStatus
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.registry_lines import DEFAULT_POOL, ExecutorTools
from aetheris.protocol.tables.tool_placement import ToolPlacement
from tests.testkit.histories import about, finished, graph, started
from tests.testkit.ledgers import Ledger, Surroundings, limits

UNSERVED_S = 3.0
PIN = {"effect_class": "idempotent", "timeout_s": 3.0}
PLAN = graph({"id": "a"}, {"id": "b", "tool": "other"}, act=PIN, other=PIN)


def line(worker_id: str, *tools: str, incarnation: str = "i1", pool: str = DEFAULT_POOL) -> ExecutorTools:
    serves = {f"{tool}@1": "s" for tool in tools}
    return ExecutorTools(worker_id=worker_id, incarnation=incarnation, pool=pool, serves=serves)


class Executors:
    """Those of a ledger's table."""

    def __init__(self) -> None:
        self.surroundings = Surroundings(PLAN, limits=limits(unserved_s=UNSERVED_S), placement=ToolPlacement())
        self.ledger: Ledger = self.surroundings.ledger()

    def live(self, worker_id: str, *tools: str, incarnation: str | None = "i1", pool: str = DEFAULT_POOL) -> None:
        placement = self.surroundings.placement
        assert placement is not None
        if incarnation is not None:
            placement.said(worker_id, line(worker_id, *tools, incarnation=incarnation, pool=pool))
        if placement.lives(worker_id, incarnation):
            self.changed()

    def changed(self) -> None:
        self.ledger.core.executors_changed(self.surroundings.now())
        self.ledger.settle()

    def waits(self) -> list[tuple[str, str | None]]:
        events = [one for one in self.surroundings.log if isinstance(one, ev.JobWaiting | ev.WaitCompleted)]
        return [(one.event_type, one.correlation_key) for one in events]

    def granted(self) -> list[tuple[tuple[str, ...], str | None]]:
        return [(one.nodes, one.pool) for one in self.ledger.grants]


@pytest.fixture
def executors() -> Executors:
    found = Executors()
    found.live("w", "other")
    return found


BEGUN, ENDED = ("job_waiting", "act@1"), ("wait_completed", "act@1")


def test_it_waits_in_silence_for_a_while_then_the_log_says_so_once(executors: Executors) -> None:
    executors.ledger.request("a")
    executors.ledger.sleep(UNSERVED_S - 0.1)
    assert (executors.waits(), executors.granted()) == ([], [])
    executors.ledger.sleep(100)
    assert (executors.waits(), executors.granted()) == ([BEGUN], [])
    assert executors.surroundings.held == set(), "it holds no lease"
    assert executors.ledger.core.open_request() is None, "the log asks for it from here on, however long it takes"
    executors.live("v", "act")
    assert executors.waits() == [BEGUN, ENDED]
    assert executors.granted() == [(("a",), DEFAULT_POOL)]


def test_one_that_comes_in_time_is_granted_to_at_once_and_nothing_is_said(executors: Executors) -> None:
    executors.ledger.request("a")
    executors.live("v", "act", pool="gpu")
    assert (executors.waits(), executors.granted()) == ([], [(("a",), "gpu")])


def test_where_nobody_has_ever_been_whoever_comes_takes_it() -> None:
    executors = Executors()
    executors.ledger.request("a")
    assert executors.granted() == [(("a",), None)]


def test_others_go_on(executors: Executors) -> None:
    executors.ledger.request("a")
    executors.ledger.sleep(100)
    executors.ledger.request("b", offset=1)
    assert executors.granted() == [(("b",), DEFAULT_POOL)]


@pytest.mark.parametrize(("pool", "run"), [("gpu", ("a",)), (DEFAULT_POOL, ("a", "b"))])
def test_a_run_ends_before_what_another_pool_serves(executors: Executors, pool: str, run: tuple[str, ...]) -> None:
    executors.live("v", "act", pool=pool)
    executors.ledger.request("a", "b")
    assert executors.granted() == [(run, pool)]


def test_a_ledger_that_starts_anew_neither_repeats_nor_forgets_it(executors: Executors) -> None:
    executors.ledger.request("a")
    executors.ledger.sleep(100)
    executors.ledger = executors.surroundings.ledger()  # and no request comes again
    executors.ledger.sleep(100)
    assert executors.waits() == [BEGUN]
    executors.live("v", "act")
    assert executors.granted() == [(("a",), DEFAULT_POOL)]
    executors.ledger.add(started("a", "n1"), finished("a", "n1"))
    assert executors.waits() == [BEGUN, ENDED]


def test_the_next_wait_of_a_call_has_a_name_of_its_own(executors: Executors) -> None:
    executors.ledger.request("a")
    executors.ledger.sleep(100)
    executors.live("v", "act")
    executors.live("v", incarnation=None)
    executors.ledger.sleep(100)
    assert executors.waits() == [BEGUN, ENDED, ("job_waiting", "act@1#2")]
    executors.live("v", "act", incarnation="i2")
    assert executors.waits()[3:] == [("wait_completed", "act@1#2")]


def test_a_further_try_waits_as_well(executors: Executors) -> None:
    executors.live("v", "act")
    executors.ledger.add(started("a", "n1"))
    executors.live("v", incarnation=None)
    executors.ledger.add(about(ev.InvocationReopened, "a", invocation_id="n1", next_token=2, by="policy"))
    executors.ledger.sleep(100)
    assert (executors.waits(), executors.granted()) == ([BEGUN], [])
    executors.live("v", "act", incarnation="i2")
    assert executors.ledger.state().status is KeyStatus.REOPENED
    assert [one.token for one in executors.ledger.grants] == [2]


def test_who_has_not_said_what_it_serves_may_serve_anything_but_who_has_goes_before(executors: Executors) -> None:
    placement = executors.surroundings.placement
    assert placement is not None
    assert placement.lives("old", "i9")
    executors.changed()
    executors.ledger.request("a")
    executors.ledger.request("b", offset=1)
    assert executors.granted() == [(("a",), DEFAULT_POOL), (("b",), DEFAULT_POOL)]
    placement.said("old", line("old", "act", incarnation="i8", pool="gpu"))
    assert placement.pool_of("act@1", "s") == "gpu", "of an earlier life: its pool is known, its tools are not"
    assert placement.pool_of("other@1", "s") == DEFAULT_POOL


@pytest.mark.parametrize("said", [{"act@1": "another"}, {"act@2": "s"}, {}])
def test_only_this_very_version_and_schema_serves_it(executors: Executors, said: dict[str, Any]) -> None:
    placement = executors.surroundings.placement
    assert placement is not None
    placement.said("w", line("w").model_copy(update={"serves": said}))
    assert placement.pool_of("act@1", "s") is None
    placement.said("w", None)
    assert placement.pool_of("act@1", "s") == DEFAULT_POOL, "it has not said what it serves"
    placement.lives("w", None)
    assert (placement.pool_of("act@1", "s"), placement.any_pool()) == (None, None)
