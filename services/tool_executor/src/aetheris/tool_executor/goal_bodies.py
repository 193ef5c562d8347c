"""The bodies of goals: a built-in workflow, run in this process, as there is no code of anybody's in it."""

from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn

from pydantic import ValidationError

from aetheris.protocol.fold.state import Settled
from aetheris.protocol.messages.event_values import RejectReason, Via
from aetheris.protocol.planning.goals import AnsweredCall, GoalArgs, GoalBody, GoalCall
from aetheris.sdk.outcomes import NotExecuted
from aetheris.sdk.workflows.bodies import Asked, BodyRaised, BodySaid, BodyStart, CallSettled, Idle, Returned
from aetheris.sdk.workflows.errors import StopReason


class GoalBodies:
    """Each does something only when it is told something."""

    def __init__(self, heard: Callable[[BodySaid], None]) -> None:
        self._heard = heard
        self._running: dict[str, GoalBody] = {}

    async def begin(self, start: BodyStart, history: Sequence[CallSettled] = ()) -> None:
        """Run one from its beginning, over what is recorded."""
        self.run(start, history)

    def run(self, start: BodyStart, history: Sequence[CallSettled] = ()) -> None:
        """As `begin`: nothing of it waits."""
        try:
            args = GoalArgs.model_validate(start.planned)
        except ValidationError:
            self._heard(BodyRaised(start.body, "bad_goal", "its arguments are not those of a goal"))
            return
        goal = self._running[start.body] = GoalBody(args, start.pins)
        self._ask(start.body, goal.begin())
        self.settled(start.body, history)

    def settled(self, body: str, settled: Sequence[CallSettled]) -> None:
        """Tell it how calls have settled; nothing to one that has ended."""
        goal = self._running.get(body)
        if goal is None:
            return
        for one in settled:
            self._ask(body, goal.told(_end(one)))
        if goal.end is None:
            self._heard(Idle(body, goal.waits_for))
            return
        del self._running[body]
        if goal.end.error is None:
            self._heard(Returned(body, goal.end.result))
        else:
            self._heard(BodyRaised(body, goal.end.error, ""))

    def stop(self, body: str, why: StopReason) -> None:  # noqa: ARG002  it has nothing to be told
        """Let go of it."""
        self._running.pop(body, None)

    async def make(self, body: str, node_id: str) -> NoReturn:  # noqa: ARG002
        """No goal has a function of its own.

        Raises:
            NotExecuted.
        """
        raise NotExecuted(f"{node_id} is no function of a goal")

    def _ask(self, body: str, calls: Iterable[GoalCall]) -> None:
        for call in calls:
            node = call.node.model_dump(mode="json", exclude_defaults=True)
            self._heard(Asked(body, node, by_reference=not call.reads, from_log=True))


def _end(settled: CallSettled) -> AnsweredCall:
    denied = settled.via == Via.HUMAN and settled.reason != RejectReason.CANCELLED
    return AnsweredCall(
        node_id=settled.node_id,
        outcome=Settled(settled.outcome),
        sure=settled.sure or denied,
        partial=settled.partial,
        result=settled.result,
        usage=settled.usage or {},
        reason=settled.reason,
        detail=settled.detail,
        duplicate_of=settled.duplicate_of,
        execution_id=settled.execution_id,
    )
