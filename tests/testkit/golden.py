"""Streams of a released version, with what came of them: `python -m tests.testkit.golden` makes those of this version.

Each later version must read them to the very same outcome (tests/replay/test_golden.py). What is kept is never
made again: a stream that reads otherwise is a fault of the reader.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from typer.testing import CliRunner

from aetheris.cli import streamfile
from aetheris.cli.app import app
from aetheris.cli.source import read_job
from aetheris.proofs import RawRecord, verify
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.state import KeyState
from aetheris.testkit.simulation.log import record_of
from aetheris.testkit.simulation.run import SimulationRun
from aetheris.testkit.simulation.tape import Tape
from aetheris.views.replayed_job import replay
from tests.testkit.external_server import ExternalServer, running_outside
from tests.testkit.refused import write
from tests.testkit.system import System, running_system

FOLDER = Path(__file__).parent.parent / "golden"
SIMULATED = ((4, 2), (14, 1), (19, 0), (25, 0), (27, 0), (46, 1))
"""Seed, and which of its jobs: between them most types of events, and each way to end."""
PATIENCE_S = 120.0


def outcome(stream: Path) -> str:
    """What the fold and the proofs make of a stream, as JSON."""
    read = streamfile.read(stream)
    report = verify(list(read.raw()), keys=read.keys)
    replayed, steps = replay(read_job(stream, FOLDER)[0])
    job = replayed.history.job
    assert job is not None
    found = {
        "status": replayed.report()["state"]["status"],
        "differences": replayed.report()["differences"],
        "counts": "".join("x" if step.moment.counts else "." for step in steps),
        "revision": job.revision,
        "plan_hash": job.plan_hash,
        "nodes": {node: [one.result_type, one.output_hash] for node, one in job.finished.items()},
        "keys": {key: _key(state) for key, state in job.keys.items()},
        "ok": report.ok,
        "violations": [[broken.rule, broken.event_id] for broken in report.violations],
        "execution_hash": report.execution_hash,
        "event_chain_root_hash": report.event_chain_root_hash,
        "event_tree_root_hash": report.event_tree_root_hash,
        "outcome_hash": report.outcome_hash,
    }
    return json.dumps(found, indent=1, sort_keys=True) + "\n"


def _key(state: KeyState) -> Mapping[str, Any]:
    """As docs/guarantees.md names it."""
    return {
        "node": state.node_id,
        "st": state.status,
        "n": state.current_invocation,
        "t": state.fencing_token,
        "x": state.external_attempt,
        "live": sorted(state.unresolved),
        "outcome": state.outcome,
        "sure": state.sure,
        "via": state.via,
        "result_hash": state.result_hash,
        "external_id": state.external_id,
    }


def simulated(seed: int, number: int) -> Sequence[Record]:
    """The records of one job of a simulated run."""
    run = SimulationRun(Tape(seed))
    run.go()
    jobs: dict[bytes | None, list[Record]] = {}
    for entry in run.events():
        record = record_of(Topic.JOBS_EVENTS, entry.record.offset, entry.id, entry.body)
        jobs.setdefault(record.key, []).append(record)
    return list(jobs.values())[number]


def _poke(node: str, tool: str = "poke_probeable", *after: str, **more: Any) -> dict[str, Any]:
    args = {} if tool == "poke_refused" else {"tag": node}
    return {"id": node, "tool": tool, "args": args | more.pop("args", {}), "depends_on": list(after), **more}


def _real(system: System, external: ExternalServer) -> Iterator[tuple[str, str]]:
    """Jobs of a real system that have ended, and are sealed."""
    chain = [_poke("a", "poke_pure"), _poke("b", "poke_idempotent", "a", args={"tag": {"$ref": "a#/tag"}})]
    yield "a-run", system.submit(*chain, _poke("c", "poke_second_time", "b"))

    held = external.hold("crashed")
    job = system.submit(_poke("crashed", args={"hold": "crashed"}), _poke("next", "poke_probeable", "crashed"))
    external.wait_for(1, "crashed", PATIENCE_S)
    system.kill("executor-0")
    held.unlink()
    yield "a-crash", job

    job = system.submit(_poke("lost", "poke_lost"))
    system.wait_status(job, "waiting", PATIENCE_S)
    answer = system.resolve(job, "lost", "happened", "seen outside", result={"poked": "lost"})
    assert answer.status_code == 200, answer.text
    yield "a-human", job

    undo = {"tool": "poke_probeable", "args": {"tag": {"$ref": "done#/poked"}, "hold": ""}}
    yield "undone", system.submit(_poke("done", compensate_with=undo), _poke("refused", "poke_refused", "done"))
    yield "a-timer", system.submit({"id": "t", "kind": "timer", "wait": {"for_s": 0.5}}, _poke("z", "poke_pure", "t"))


def make() -> None:
    """Write the streams and outcomes of this version."""
    folder = FOLDER / version("aetheris-protocol")
    folder.mkdir(parents=True)
    for seed, number in SIMULATED:
        raw = [RawRecord(one.offset, one.key, one.headers, one.value) for one in simulated(seed, number)]
        write(folder / f"simulated-{seed}-{number}.jsonl", raw)
    with TemporaryDirectory() as name, running_outside(Path(name) / "outside") as external:
        data, env = Path(name) / "data", {"AETHERIS_TOOLS": "tests.testkit.external_tools"} | external.env
        with running_system(data, env) as system:
            jobs = dict(_real(system, external))
            system.wait_ended(jobs.values(), PATIENCE_S)
            for name_of, job in jobs.items():
                argv = ["export", job, "--stream", "--out", str(folder / f"{name_of}.jsonl"), "--data", str(data)]
                done = CliRunner().invoke(app, argv)
                assert done.exit_code == 0, done.output
    for stream in folder.glob("*.jsonl"):
        stream.with_suffix(".outcome.json").write_text(outcome(stream))
    sys.stdout.write(f"{folder}\n")


if __name__ == "__main__":
    make()
