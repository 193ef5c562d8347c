"""A try of a call: who makes it, for which grant, and the `started` that declares it; pure."""

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from aetheris.protocol.base.keys import external_key
from aetheris.protocol.base.words import CallWords, TryWords
from aetheris.protocol.fold.child_calls import MAX_CHILDREN
from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import CodeVersion, Outcome
from aetheris.protocol.plan.graph import EffectKind, Kind
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
    is_missing: bool = False
    """This process lacks what is called: another may have it, so the grant is passed over and nothing is recorded."""


Refuses = Callable[[Invocation], CallRefusal | None]
"""Whether this process can make the call: the pinned tool is loaded, and takes the arguments."""

KindOf = Callable[[Invocation], EffectKind]
"""What a call's effect is: that of its node, or what its tool says."""


CodeOf = Callable[[Invocation], CodeVersion | None]
"""The code that runs here as a workflow's body; None where there is none."""

FIRST_CALLS = 1_000
"""Calls that a body can plan; then it begins anew, and can plan all, as who has half so many: their words take time."""


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
    call_words: CallWords | None = None
    """Of a body: those of the calls that it plans."""
    recorded_code: CodeVersion | None = None
    """Of a body: the code of the one before it."""
    frontier: str | None = None
    """Of a body that has planned nothing: what its end says of what it has asked for."""

    @property
    def invocation_id(self) -> str:
        """Its invocation_id."""
        return self.started.invocation_id


class Declarer:
    """Writes `started` in a worker's name."""

    def __init__(self, worker: Worker, kind_of: KindOf, code_of: CodeOf) -> None:
        self._worker = worker
        self._kind_of = kind_of
        self._code_of = code_of

    def declared(self, job: JobState, call: Invocation, run: GrantRun, secret: bytes, token: int) -> DeclaredInvocation:
        """A try of a call, to be claimed when it is declared; `secret` is fresh."""
        if call.entry.node.kind is Kind.WORKFLOW:
            return self._body(job, call, run, secret, token)
        words = TryWords.of(secret)
        return DeclaredInvocation(run, self._started(job, call, run, words.invocation_id, token), call, words)

    def _body(self, job: JobState, call: Invocation, run: GrantRun, secret: bytes, token: int) -> DeclaredInvocation:
        """A try of a node with a body: its own words say nothing of those of its calls."""
        state = job.keys.get(call.key)
        before = state.started if state is not None else None
        words = TryWords.of(sha256(b"body\0" + secret).digest())
        body = job.bodies.of.get(call.entry.node.id) if job.bodies is not None else None
        is_long = body is not None and body.children >= FIRST_CALLS // 2
        calls = CallWords.of(sha256(b"calls\0" + secret).digest(), MAX_CHILDREN if is_long else FIRST_CALLS)
        started = self._started(job, call, run, words.invocation_id, token)
        started = started.model_copy(update={"code": self._code_of(call), "plans": calls.plans})
        code = None if before is None else before.code
        return DeclaredInvocation(run, started, call, words, call_words=calls, recorded_code=code)

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
            kind=EffectKind.TOOL if call.entry.node.kind is Kind.WORKFLOW else self._kind_of(call),
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
