"""A try of a call: who makes it, for which grant, and the `started` that declares it; pure."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aetheris.protocol.base.keys import external_key
from aetheris.protocol.base.words import TryWords
from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import Outcome
from aetheris.protocol.plan.graph import EffectKind
from aetheris.protocol.planning.invocation import Invocation
from aetheris.tool_executor.core.grants import ReceivedGrant


@dataclass(frozen=True, slots=True)
class Worker:
    """Who executes: a stable name, and this life of it."""

    worker_id: str
    incarnation: str


@dataclass(frozen=True, slots=True)
class CallRefusal:
    """Why a call is not made although it may start: certain to have had no effect."""

    outcome: Outcome
    error: str


Refuses = Callable[[Invocation], CallRefusal | None]
"""Whether this process can make the call: the pinned tool is loaded, and takes the arguments."""

KindOf = Callable[[Invocation], EffectKind]
"""What a call's effect is: that of its node, or what its tool says."""


@dataclass(slots=True)
class NodeReport:
    """What a node of a run came to, known here before it is in the log."""

    invocation_id: str
    result_hash: str
    result: Any


@dataclass(slots=True)
class GrantRun:
    """A grant at work: the place of the node in charge, and what those before it returned."""

    taken: ReceivedGrant
    trace: bool | None = None
    """Whether its job's submission wants it traced."""
    tenant: str = ""
    """Its job's."""
    place: int = 0
    reports: dict[str, NodeReport] = field(default_factory=dict[str, NodeReport])

    @property
    def following(self) -> str | None:
        """The node after the one in charge."""
        nodes = self.taken.grant.nodes
        return nodes[self.place + 1] if self.place + 1 < len(nodes) else None


@dataclass(slots=True)
class DeclaredInvocation:
    """One invocation of a call: to be declared by `started`, and run only if that wins."""

    run: GrantRun
    started: ev.ToolInvocationStarted
    call: Invocation
    words: TryWords
    refusal: CallRefusal | None = None

    @property
    def invocation_id(self) -> str:
        """Its invocation_id."""
        return self.started.invocation_id


class Declarer:
    """Writes `started` in a worker's name."""

    def __init__(self, worker: Worker, kind_of: KindOf) -> None:
        self._worker = worker
        self._kind_of = kind_of

    def declared(self, job: JobState, call: Invocation, run: GrantRun, secret: bytes, token: int) -> DeclaredInvocation:
        """A try of a call, to be claimed when it is declared; `secret` is fresh."""
        words = TryWords.of(secret)
        return DeclaredInvocation(run, self._started(job, call, run, words.invocation_id, token), call, words)

    def _started(
        self, job: JobState, call: Invocation, run: GrantRun, invocation_id: str, token: int
    ) -> ev.ToolInvocationStarted:
        state, planned = job.keys.get(call.key), call.entry.call
        attempt_id = state.external_attempt - 1 if state is not None else 0
        rules = run.taken.grant.rules
        is_first = state is None or not state.invocations
        return ev.ToolInvocationStarted(
            job_id=job.job_id,
            caused_by=run.taken.cause,
            node_id=call.node_id,
            idempotency_key=call.key,
            invocation_id=invocation_id,
            revision=run.taken.grant.revision,
            token=token,
            attempt_id=attempt_id,
            external_key=external_key(job.job_id, call.node_id, attempt_id),
            kind=self._kind_of(call),
            tool_name=call.entry.node.tool_name,
            tool_version=call.entry.tool_version,
            args_hash=call.args_hash,
            content_key=call.content_key,
            occurrence=call.entry.node.occurrence,
            rule=rules[run.place] if run.place < len(rules) else None,
            after=call.after,
            worker_id=self._worker.worker_id,
            incarnation=self._worker.incarnation,
            parent_invocation=planned.invocation_id if planned is not None and is_first else None,
        )
