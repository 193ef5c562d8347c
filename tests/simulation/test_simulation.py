"""The whole protocol under seeded faults: what must hold holds, and without any of its rules it is caught."""

from collections import Counter
from collections.abc import Iterable
from typing import Literal

import pytest

from aetheris.ledger.core.decisions import Now
from aetheris.ledger.core.quarantine import Quarantine, TenantTool
from aetheris.ledger.core.timer_queue import Item
from aetheris.proofs import verify
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.events import CallPlanned, JobCreated, ToolInvocationStarted
from aetheris.testkit.simulation.__main__ import explained, main
from aetheris.testkit.simulation.ablations import ABLATIONS, Ablation
from aetheris.testkit.simulation.checks import Broken
from aetheris.testkit.simulation.forged_records import WAYS
from aetheris.testkit.simulation.log import Entry
from aetheris.testkit.simulation.proof_checks import histories
from aetheris.testkit.simulation.run import SimulationRun, simulate
from aetheris.testkit.simulation.scenario import LEAST_FAULTS, SCOPES, draw_scenario
from aetheris.testkit.simulation.seeds import (
    ACTIVATED,
    ACTIVATES,
    BODIES,
    FORGED,
    FORGES,
    MIXED,
    ORDERS_RULES,
    SIGNS,
    UNSERVED,
)
from aetheris.testkit.simulation.shrink import shrink
from aetheris.testkit.simulation.tape import Tape
from aetheris.testkit.simulation.versions import ReadableRecords
from tests.testkit.ablated_seeds import told_seed
from tests.testkit.standalone import assert_agrees

pytestmark = pytest.mark.timeout(600)  # pure CPU: a busy machine has little

SEEDS = 500
PART = 100
WORKFLOWS = range(SEEDS, SEEDS + 800)
FOUND = (71000980,)
"""Seeds beyond those that have broken a promise, or a check of one, before: a copy of a birth, too far to be one."""


@pytest.mark.parametrize("start", range(0, SEEDS, PART))
def test_the_promises_hold(start: int) -> None:
    for seed in range(start, start + PART):
        outcome = simulate(seed)
        assert not outcome.broken, explained(outcome)
        assert outcome.faults >= LEAST_FAULTS


@pytest.mark.parametrize("start", WORKFLOWS[::200])
def test_the_promises_hold_of_workflows(start: int) -> None:
    for seed in filter(has_bodies, range(start, start + 200)):
        outcome = simulate(seed)
        assert not outcome.broken, explained(outcome)


@pytest.mark.parametrize("start", [0, 7, SEEDS, SEEDS + 9])
def test_jobs_that_rest_as_soon_as_they_may_are_decided_about_as_those_that_never_do(start: int) -> None:
    for seed in range(start, start + 7):
        awake, rested = (simulate(seed, traced=True, rests=rests) for rests in (False, True))
        assert rested == awake, explained(rested)


def test_seeds_have_workflows_taken_over_asleep_lost_and_changed_and_accepted_by_people() -> None:
    told: Counter[str] = Counter()
    for seed in filter(has_bodies, range(400)):
        history = "\n".join(simulate(seed, traced=True).history)
        told.update(what for what in _TOLD if what in history)
    assert all(told[what] > least for what, least in _TOLD.items()), told


_TOLD = {
    "falls asleep": 10,
    "its bodies are lost": 5,
    "code is deployed": 10,
    "invocation_parked": 5,
    "as it is now": 0,
    "workflow_accepted": 0,
}


def test_both_readers_say_the_same_of_jobs_with_workflows() -> None:
    for seed in filter(has_bodies, range(200)):
        rooted = seed % FORGED in SIGNS
        run = SimulationRun(Tape(seed), rooted=rooted, bodies=True)
        run.go()
        for records in histories((part.log for part in run.parts), run.observer).values():
            assert_agrees(verify(records), records)


@pytest.mark.parametrize("seed", FOUND)
def test_what_was_found_once_holds(seed: int) -> None:
    outcome = simulate(seed)
    assert not outcome.broken, outcome.broken


@pytest.mark.parametrize("ablation", ABLATIONS, ids=lambda ablation: ablation.name)
def test_without_a_rule_it_is_caught(ablation: Ablation) -> None:
    assert is_caught(ablation, told_seed(ablation)), f"{ablation.name} is first caught by {first_caught(ablation)}"


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("ablation", ABLATIONS, ids=lambda ablation: ablation.name)
def test_no_seed_before_the_one_that_is_told_catches_it(ablation: Ablation) -> None:
    assert first_caught(ablation) == told_seed(ablation)


def test_a_seed_is_two_jobs_of_three_steps_and_a_run_and_now_and_then_a_goal() -> None:
    runs, turns = 0, 0
    for seed in range(80):
        run = SimulationRun(Tape(seed))
        plans = [one.plan for one in run.around.scenario.submissions if one.goal is None]
        assert len(plans) >= 2
        assert all(plan is not None and len(plan["nodes"]) >= 3 for plan in plans)
        run.go()
        events = [entry.body for entry in run.events()]
        turns += sum(isinstance(event, CallPlanned) and event.node_id.endswith(".turn-2") for event in events) > 0
        runs += any(event.after for event in events if isinstance(event, ToolInvocationStarted))
    assert turns > 5, "a third of the seeds has a goal"
    assert runs > 25, "a cancel or a fault may cut a run, but not most of them"


def test_seeds_have_several_partitions_whose_processes_keep_one_and_lose_another() -> None:
    parted, kept, scopes = 0, 0, set[str]()
    for seed in range(80):
        outcome = simulate(seed, traced=True)
        scenario = draw_scenario(Tape(seed))
        scopes.add(scenario.scope)
        if scenario.partitions == 2:
            parted += 1
            kept += any("*** partition" in line or "gives partition" in line for line in outcome.history)
    assert parted > 10
    assert kept > 5
    assert scopes == set(SCOPES)


def test_seeds_have_tools_in_quarantine_that_work_again_or_are_released(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[str] = []
    real = Quarantine._end  # pyright: ignore[reportPrivateUsage]

    def end(core: Quarantine, what: Literal["ended", "released"], tool: TenantTool, now: Now) -> Iterable[Item]:
        ends.extend([what] if tool in core else [])
        return real(core, what, tool, now)

    monkeypatch.setattr(Quarantine, "_end", end)
    for seed in range(300):
        simulate(seed)
    assert ends.count("ended") >= 5
    assert ends.count("released") > 20


def test_seeds_have_calls_that_wait_for_an_executor_and_go_on() -> None:
    waits: list[str] = []
    for seed in (place for place in range(400) if place % ACTIVATED in UNSERVED):
        run = SimulationRun(Tape(seed), unserved=True)
        run.go()
        bodies = [entry.body for entry in run.events()]
        waits += [one.event_type for one in bodies if getattr(one, "wait_type", "") == "executor"]
    assert waits.count("job_waiting") >= 5
    assert waits.count("wait_completed") >= 5


def test_seeds_have_processes_of_two_versions_and_each_kind_meets_what_it_cannot_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    met: set[str] = set()
    types: set[str] = set()
    reads = ReadableRecords.reads

    def noted(reading: ReadableRecords, entry: Entry) -> bool:
        found = reads(reading, entry)
        if not found:
            met.add(reading.name.replace("-", " ").split()[0])
            types.add(entry.body.event_type)
        return found

    monkeypatch.setattr(ReadableRecords, "reads", noted)
    for seed in (place for place in range(1400) if place % ACTIVATED in MIXED):
        SimulationRun(Tape(seed), mixed=True).go()
    assert met == {"planner", "ledger", "executor", "verifier"}
    assert types >= {"job_created", "plan_generated", "node_finished"}, "a planner's"
    assert types >= {"policy_allowed", "invocation_probed", "job_sealed"}, "a ledger's, a prober's, a verifier's"
    assert types >= {"tool_invocation_started", "tool_invocation_finished"}, "an executor's"


def test_seeds_have_policies_activated_by_several_and_while_a_partition_changes_hands() -> None:
    told, decided, late = list[str](), 0, 0
    for seed in range(ACTIVATES, 60 * ACTIVATED, ACTIVATED):
        forger, rooted = seed % FORGED in FORGES, seed % FORGED in SIGNS
        run = SimulationRun(Tape(seed), forger=forger, rooted=rooted, activates=True)
        run.around.progress.trace = trace = []
        run.go()
        told += [line for line in trace if "***" in line]
        decided += sum(bool(getattr(entry.body, "activation", 0)) for entry in run.events())
        late += sum(map(len, run.around.activations.went_back.values()))
    assert all(any(what in line for line in told) for what in ("nobody can read", "at once", "zombie, then activation"))
    assert all(any(what in line for line in told) for what in ("somebody forges forged-", "Activation at", "Answer at"))
    assert decided > 40
    assert late > 0


def test_seeds_have_later_rules_ordered_while_jobs_are_created() -> None:
    late, versions = 0, set[int]()
    for seed in range(ORDERS_RULES, 20 * ACTIVATED, ACTIVATED):
        rooted = seed % FORGED in SIGNS
        run = SimulationRun(Tape(seed), rooted=rooted, orders_rules=True)
        run.go()
        for number, part in enumerate(run.parts):
            entries = part.log.topics[Topic.JOBS_EVENTS]
            births = [(one.body, one.record.offset) for one in entries if isinstance(one.body, JobCreated)]
            late += sum(run.around.rules.refuses(birth, number, offset) for birth, offset in births)
        versions |= {job.created.rules for job in run.observer.jobs.values()}
    assert late > 3
    assert versions == {1, 2, 3}


def test_a_forger_writes_in_every_way_that_he_has() -> None:
    ways = set[str]()
    for seed in (seed for seed in range(300) if seed % FORGED in SIGNS):
        outcome = simulate(seed, traced=True)
        assert not outcome.broken, explained(outcome)
        ways |= {line.partition("somebody writes ")[2] for line in outcome.history if "*** somebody writes" in line}
    assert ways == {how for how, _ in WAYS} | {"as it lies there", "with an altered path"}


QUESTIONS = 60
UNKEPT = Ablation(
    "with a question that only the ledger keeps",
    "a `started` behind an open question is void, whoever grants it",
    QUESTIONS,
    {"aetheris.protocol.fold.start.is_unanswered": lambda _: lambda *_: False},
)


def test_nothing_starts_behind_a_question_whoever_grants_it() -> None:
    granted = 0
    for seed in range(QUESTIONS):
        run = SimulationRun(Tape(seed), forger=True, grants=True)
        run.around.progress.trace = trace = []
        run.go()
        granted += any("*** somebody grants" in line for line in trace)
    assert granted > 5


def test_without_that_rule_a_forged_grant_is_caught() -> None:
    for seed in range(QUESTIONS):
        run = SimulationRun(Tape(seed), forger=True, grants=True, compared=False)
        try:
            with UNKEPT.applied():
                run.go()
        except Broken as error:
            if error.rule == "nothing_starts_behind_an_open_question":
                return
    raise AssertionError("no seed has caught it")


def test_a_seed_gives_the_same_run_again() -> None:
    once, again = simulate(7, traced=True), simulate(7, traced=True)
    assert once == again
    assert simulate(7, recorded=once.tape).steps == once.steps


def test_the_json_of_every_record_gives_the_same_history() -> None:
    for seed in range(1, 21):
        assert _history(seed, codec=True) == _history(seed, codec=False)


def test_a_failing_seed_prints_the_shortest_history_of_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = simulate(told_seed(ABLATIONS[0]), ablation=ABLATIONS[0])
    least = shrink(found, ABLATIONS[0], most_tries=200)
    assert least.rule == found.rule
    assert least.steps <= found.steps
    monkeypatch.setattr("aetheris.testkit.simulation.shrink.MOST_TRIES", 200)
    assert main(["--from", str(found.seed), "--seeds", "1", "--processes", "1", "--ablation", ABLATIONS[0].name]) == 1
    printed = capsys.readouterr().out
    assert f"--from {found.seed} --seeds 1" in printed
    assert "tool_invocation_started" in printed


def has_bodies(seed: int) -> bool:
    return seed % ACTIVATED in BODIES


def first_caught(ablation: Ablation) -> int | None:
    """The first seed that catches it, of those that it says are enough."""
    return next((seed for seed in range(ablation.caught_within) if is_caught(ablation, seed)), None)


def is_caught(ablation: Ablation, seed: int) -> bool:
    """Whether what really happened, not only a proof, shows in this seed that the rule is missing."""
    if has_bodies(seed) != ablation.bodies:
        return False
    outcome = simulate(seed, ablation=ablation)
    return bool(outcome.broken) and not outcome.rule.startswith(("proofs.", "raised", "folds"))


def _history(seed: int, *, codec: bool) -> list[tuple[str, object]]:
    rooted = seed % FORGED in SIGNS
    run = SimulationRun(Tape(seed), codec=codec, forger=rooted, rooted=rooted)
    run.go()
    return [(entry.id, entry.body) for entry in run.events()]
