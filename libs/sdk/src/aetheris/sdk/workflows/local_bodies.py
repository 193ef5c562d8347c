"""Bodies that run in this process, as `BodyHost` runs them in another: for tests, and to replay recorded ones."""

from collections.abc import Callable, Iterable, Sequence

from aetheris.sdk.workflows.bodies import Asked, BodyRaised, BodySaid, BodyStart, CallSettled, Idle, Returned
from aetheris.sdk.workflows.body_run import BodyRun
from aetheris.sdk.workflows.declaration import AnyWorkflow
from aetheris.sdk.workflows.errors import StopReason
from aetheris.sdk.workflows.local_calls import LocalFunction

Heard = Callable[[BodySaid], None]


class LocalBodies:
    """Bodies of some workflows; each runs whenever it is told something, and until it waits."""

    def __init__(self, workflows: Iterable[AnyWorkflow], heard: Heard) -> None:
        self._workflows = {one.key: one for one in workflows}
        self._heard = heard
        self._runs: dict[str, BodyRun] = {}

    def begin(self, start: BodyStart, history: Sequence[CallSettled] = ()) -> None:
        """Run a workflow's code from its beginning, over what is recorded.

        Raises:
            LookupError: there is no such workflow.
        """
        self.drop(start.body)
        flow = self._workflows[start.workflow]
        run = self._runs[start.body] = BodyRun(start, flow.main, strict=flow.strict)
        run.begin()
        self._say(run)
        self.settled(start.body, history)

    def settled(self, body: str, settled: Sequence[CallSettled]) -> None:
        """Tell a body how calls have settled, in the order of the log; nothing to one that has ended."""
        run = self._runs.get(body)
        if run is None:
            return
        for one in settled:
            run.tell(one)
            self._say(run)
        self._at_rest(run)

    def stop(self, body: str, why: StopReason) -> None:
        """Let a body call nothing any more, and come to its end."""
        run = self._runs.get(body)
        if run is not None:
            run.stop(why)
            self._at_rest(run)

    def local(self, body: str, node_id: str) -> LocalFunction | None:
        """What makes a call that a body waits for; None where it has not asked for it, or is no more."""
        run = self._runs.get(body)
        return run.local(node_id) if run is not None else None

    def drop(self, body: str) -> None:
        """Let go of a body, as if it had died; nothing of that is heard."""
        run = self._runs.pop(body, None)
        if run is not None:
            run.drop()

    def _say(self, run: BodyRun) -> None:
        for node, by_reference in run.take_asked():
            said = node.model_dump(mode="json", exclude_defaults=True)
            self._heard(Asked(run.start.body, said, by_reference))

    def _at_rest(self, run: BodyRun) -> None:
        self._say(run)
        body, end = run.start.body, run.end
        if end is None:
            self._heard(Idle(body, run.waits_for))
            return
        self._runs.pop(body, None)
        if end.error_class is None:
            self._heard(Returned(body, end.result))
        else:
            self._heard(BodyRaised(body, end.error_class, end.text))
