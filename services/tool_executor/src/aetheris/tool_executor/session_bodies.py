"""The bodies of sessions: the built-in workflow, run in this process, as there is no code of anybody's in it."""

from collections.abc import Callable, Sequence
from typing import NoReturn

from aetheris.protocol.fold.state import Settled
from aetheris.protocol.messages.event_values import Via
from aetheris.protocol.plan.graph import Node
from aetheris.protocol.planning.sessions import CallEnd, SessionBody
from aetheris.sdk.outcomes import NotExecuted
from aetheris.sdk.workflows.bodies import Asked, BodyRaised, BodySaid, BodyStart, CallSettled, Idle, Returned
from aetheris.sdk.workflows.errors import StopReason


class SessionBodies:
    """Each does something only when it is told something."""

    def __init__(self, heard: Callable[[BodySaid], None]) -> None:
        self._heard = heard
        self._running: dict[str, SessionBody] = {}

    async def begin(self, start: BodyStart, history: Sequence[CallSettled] = ()) -> None:
        """Run one from its beginning, over what is recorded."""
        self.run(start, history)

    def run(self, start: BodyStart, history: Sequence[CallSettled] = ()) -> None:
        """As `begin`: nothing of it waits."""
        session = self._running[start.body] = SessionBody(start.args["idle_timeout_s"])
        self._ask(start.body, session.wait())
        self.settled(start.body, history)

    def settled(self, body: str, settled: Sequence[CallSettled]) -> None:
        """Tell it how calls have settled; nothing to one that has ended."""
        session = self._running.get(body)
        if session is None:
            return
        for one in settled:
            for node in session.told(_end(one)):
                self._ask(body, node)
        if session.end is None:
            self._heard(Idle(body, session.waits_for))
            return
        del self._running[body]
        if session.end.error is None:
            self._heard(Returned(body, session.end.result))
        else:
            self._heard(BodyRaised(body, "SessionEnded", session.end.error))

    def stop(self, body: str, why: StopReason) -> None:  # noqa: ARG002  it has nothing to be told
        """Let go of it."""
        self._running.pop(body, None)

    async def make(self, body: str, node_id: str) -> NoReturn:  # noqa: ARG002
        """No session has a function of its own.

        Raises:
            NotExecuted.
        """
        raise NotExecuted(f"{node_id} is no function of a session")

    def _ask(self, body: str, node: Node) -> None:
        self._heard(Asked(body, node.model_dump(mode="json", exclude_defaults=True)))


def _end(settled: CallSettled) -> CallEnd:
    return CallEnd(
        node_id=settled.node_id,
        outcome=Settled(settled.outcome),
        sure=settled.sure or settled.via == Via.HUMAN,
        result=settled.result,
        reason=settled.reason,
        rejected_by=settled.rejected_by,
    )
