"""Who may append lines of workers, and has no word of a life but those that lie there (docs/simulation.md)."""

from collections.abc import Sequence

from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.words import LifeWord, LifeWords
from aetheris.protocol.messages.commands import WorkerEntry
from aetheris.testkit.simulation.log import WholeBatch, again
from aetheris.testkit.simulation.surroundings import SimulationSurroundings
from aetheris.tool_executor.core.tries import Worker


def forged_line(around: SimulationSurroundings, workers: Sequence[Worker]) -> WholeBatch:
    """By its incarnation, by words of his own or that he has read, that one has ended; or what others wrote."""
    tape, entries = around.tape, around.log.topics[Topic.WORKERS]
    if entries and tape.chance(0.2):
        return again(Topic.WORKERS, (tape.pick(entries),))
    worker = tape.pick(workers)
    made = LifeWords.of(around.fresh_secret())
    lines = [one.body for one in entries[-5:] if isinstance(one.body, WorkerEntry)]
    read = [word for line in lines for word in (*line.left, *line.ended)]
    others = (made.word(LifeWord.ENDED), made.word(LifeWord.LEFT), *read)
    word = worker.incarnation if tape.chance(0.5) else tape.pick(others)
    left = (word,) if tape.chance(0.3) else ()
    live = tape.pick((None, worker.incarnation, made.incarnation))
    line = WorkerEntry(worker_id=worker.worker_id, live=live, left=left, ended=(word,))
    return WholeBatch(Topic.WORKERS, ((around.fresh("worker-"), line),))


def another_host(around: SimulationSurroundings, worker_id: str) -> WholeBatch:
    """That somebody else lives under a name."""
    line = WorkerEntry(worker_id=worker_id, live=LifeWords.of(around.fresh_secret()).incarnation)
    return WholeBatch(Topic.WORKERS, ((around.fresh("worker-"), line),))
