"""Every history that the simulation makes, with all its crashes and doubts, replays as it was recorded."""

import json

import pytest

from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import FreezeBarrier
from aetheris.testkit.simulation.log import record_of
from aetheris.testkit.simulation.run import SimulationRun
from aetheris.testkit.simulation.tape import Tape
from aetheris.views.job_history import job_history
from aetheris.views.provenance import origin
from aetheris.views.replayed_job import replay
from aetheris.views.trace import trace_of

SEEDS = 60


def histories(seed: int) -> list[list[Record]]:
    """The records of each job of a run."""
    run = SimulationRun(Tape(seed))
    run.go()
    found: dict[bytes | None, list[Record]] = {}
    for entry in run.events():
        if isinstance(entry.body, FreezeBarrier):
            continue  # of no job
        record = record_of(Topic.JOBS_EVENTS, entry.record.offset, entry.id, entry.body)
        found.setdefault(record.key, []).append(record)
    return list(found.values())


@pytest.mark.parametrize("start", range(0, SEEDS, 20))
def test_nothing_differs_and_every_effect_has_its_reasons(start: int) -> None:
    for seed in range(start, start + 20):
        for records in histories(seed):
            found, _ = replay(records)
            assert found.report()["differences"] == [], f"seed {seed}"
            again = job_history(records)
            assert json.dumps(again.effects.rows) == json.dumps(found.history.effects.rows), f"seed {seed}"
            assert len(trace_of(again)["events"]) == len(records)
            for row in again.effects.rows:
                tree = origin(again, row)
                assert tree["because"][-1]["what"] == "step", f"seed {seed}"
