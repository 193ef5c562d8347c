"""Which ready nodes are asked for, in what order, and what is reported of settled ones."""

from collections.abc import Iterator

from aetheris.planner.core import compensation
from aetheris.planner.core.decisions import Append, Output
from aetheris.planner.core.model_decisions import decision
from aetheris.planner.core.progress import JobProgress
from aetheris.planner.core.steps import is_untouched, load, node_finished, request, unresolvable
from aetheris.planner.core.watch import unstarted
from aetheris.protocol.base.canonical import InvalidArgs
from aetheris.protocol.base.references import UnresolvedReference
from aetheris.protocol.fold.start import is_stopped
from aetheris.protocol.planning.invocation import Blobs


def reports(progress: JobProgress) -> Iterator[Output]:
    """The reports of the nodes that have settled since the last call."""
    settled, progress.settled = progress.settled, []
    for node_id in settled:
        report = node_finished(progress, node_id)
        if report is None:
            continue
        progress.sent.nodes.add(node_id)
        decided = decision(progress, node_id)
        if decided is not None:
            yield Append((*report.facts, decided))
        elif progress.entry(node_id).node.compensates is None:
            yield report
        else:
            yield Append((*report.facts, *compensation.reported(progress, node_id)))


def ask_again(progress: JobProgress) -> None:
    """What was asked for and not taken up may have been dropped."""
    again = unstarted(progress)
    progress.sent.requests.difference_update(again)
    progress.ready.extend(again)


def may_start(progress: JobProgress) -> bool:
    """Whether nodes of the revision in force are still to start."""
    if progress.is_stopping:
        return False
    return progress.undo_failure is None if progress.is_undoing else progress.failure is None


def requests(progress: JobProgress, *, runs: bool) -> Iterator[Output]:
    """The ready nodes that nobody has taken up, in declared order, up to one that can't be asked for."""
    ready, progress.ready = progress.ready, []
    for node_id in sorted(ready, key=progress.graph.declared.__getitem__):
        if node_id in progress.sent.requests or node_id in progress.ended or not is_untouched(progress, node_id):
            continue
        if is_stopped(progress.job, progress.entry(node_id)):
            continue
        progress.sent.requests.add(node_id)
        large = load(progress, node_id)
        if large is not None:
            yield large
        else:
            yield from request_or_end(progress, node_id, {}, runs=runs)
        if not may_start(progress):
            return


def request_or_end(progress: JobProgress, node_id: str, blobs: Blobs | None, *, runs: bool) -> Iterator[Output]:
    """The request for a node, or its end where its references lead nowhere."""
    try:
        yield request(progress, node_id, blobs, runs=runs)
    except (UnresolvedReference, InvalidArgs) as error:
        progress.fail(node_id, str(error))
        progress.sent.nodes.add(node_id)
        yield unresolvable(progress, node_id, str(error))
