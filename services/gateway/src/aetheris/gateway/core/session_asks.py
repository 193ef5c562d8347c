"""Sessions, decided: what begins one, what its client's requests ask of it, how it stands. Pure."""

import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from aetheris.gateway.core import bodies
from aetheris.gateway.core.problems import BadRequestProblem, ConflictProblem
from aetheris.gateway.core.submissions import SubmissionRequest, offered_tools
from aetheris.protocol import api_sessions as api
from aetheris.protocol.base.canonical import canonical, digest, is_longer
from aetheris.protocol.base.records import Record
from aetheris.protocol.fold.bodies import ended_call
from aetheris.protocol.fold.job_log import Sequence, fold_event, next_logged_event
from aetheris.protocol.fold.state import JobState, KeyState, KeyStatus, Settled
from aetheris.protocol.messages.commands import RegistryEntry, Submit
from aetheris.protocol.messages.envelope import NeedsUpgrade
from aetheris.protocol.messages.event_values import Via
from aetheris.protocol.messages.events import Event
from aetheris.protocol.plan.graph import MAX_PLAN_BYTES, EffectClass, JobOptions
from aetheris.protocol.planning.schemas import ArgsRefused, Schema, check_args, graph_json, pin_of, with_defaults
from aetheris.protocol.planning.sessions import (
    SESSION_ENTRY,
    SESSION_NODE,
    AskRefused,
    CallEnd,
    SessionAsk,
    SessionBody,
    SessionCall,
    SessionComplete,
    is_session,
    session_graph,
)

Schemas = Callable[[str, str, str], Schema | None]
"""The schema of a tool's very version, by name, version and hash."""


def run_key(by: str, run_id: str) -> str:
    """What names somebody's run as an Idempotency-Key does; it has a space, so that no client can send it."""
    return f"run {digest([by, run_id])}"


def begin_command(
    wanted: api.SessionAttachBody, asked: SubmissionRequest, registry: Mapping[str, RegistryEntry]
) -> Submit:
    """The command that creates a run's job.

    Raises:
        BadRequest: naming the field.
    """
    pins = {name: pin_of(registry[name]) for name in offered_tools(wanted.tools, registry)}
    plan = graph_json(session_graph(wanted.idle_timeout_s, pins, pin_of(SESSION_ENTRY)))
    if is_longer(plan, MAX_PLAN_BYTES):
        raise bodies.plan_too_large()
    same = wanted.model_dump(mode="json", exclude={"body", "beside"})
    return Submit(
        job_id=asked.job_id,
        by=asked.by,
        tenant=asked.tenant,
        request_hash=hashlib.sha256(canonical(same)).hexdigest(),
        plan=plan,
        agent=wanted.agent,
        session=wanted.run_id,
        idempotency_key=asked.idempotency_key,
        options=JobOptions.model_validate(wanted.options.model_dump()),
    )


@dataclass(slots=True)
class FollowedSession:
    """A session as far as its log was read."""

    job: JobState | None = None
    body: SessionBody | None = None
    _numbers: Sequence = field(default_factory=Sequence)

    def take(self, record: Record) -> None:
        """The next record of its job."""
        self.follow(next_logged_event(self._numbers, record).event, record.offset)

    def follow(self, event: Event | NeedsUpgrade | None, offset: int) -> None:
        """The next event of its job; None: a record that counts for none."""
        self.job, _ = fold_event(self.job, event, offset)
        if self.job is None:
            return
        entry = self.job.entry(SESSION_NODE)
        if self.body is None and entry is not None and is_session(entry.node):
            self.body = SessionBody(entry.node.args["idle_timeout_s"])
        if self.body is not None and isinstance(event, Event):
            ended = ended_call(self.job, event)
            if ended is not None:
                self.body.told(_end(*ended))

    @property
    def is_no_session(self) -> bool:
        """Whether its job is another kind of job."""
        return self.job is not None and self.job.revision >= 0 and self.body is None

    @property
    def is_over(self) -> bool:
        """Whether nothing new comes of anything that is asked."""
        job = self.job
        return job is not None and (
            job.terminal is not None or job.stopping is not None or job.settled_key(SESSION_NODE) is not None
        )

    @property
    def status(self) -> str | None:
        """How its job has ended; None of one that has not."""
        terminal = self.job.terminal if self.job is not None else None
        return None if terminal is None else terminal.event_type.removeprefix("job_")

    @property
    def result(self) -> Any:
        """Of a run that was completed."""
        return self.body.end.result if self.body is not None and self.body.end is not None else None

    @property
    def listens(self) -> bool:
        """Whether its body waits for the next ask, as the log says."""
        job, body = self.job, self.body
        return job is not None and body is not None and body.wait_id in job.entries

    def state_of(self, node_id: str) -> KeyState | None:
        """How a call stands, where anything is recorded of it."""
        entry = self.job.entry(node_id) if self.job is not None else None
        call = entry.call if entry is not None else None
        return self.job.keys.get(call.key) if self.job is not None and call is not None else None


def call_asked(
    wanted: api.SessionCallBody, followed: FollowedSession, asked: Collection[str], schemas: Schemas
) -> SessionCall:
    """What a request asks of a session: a tool that its plan pins, with arguments that fit its schema, literal.

    Args:
        asked: what this process has asked for already.

    Raises:
        BadRequest: naming the field.
    """
    bodies_of = followed.job.bodies if followed.job is not None else None
    pin = bodies_of.pins.get(wanted.tool) if bodies_of is not None and wanted.tool != SESSION_ENTRY.name else None
    if pin is None or followed.body is None:
        raise BadRequestProblem("bad_request", "tool", "is not among the tools of this run")
    schema = schemas(wanted.tool, pin.version, pin.schema_hash)
    if schema is None:
        raise BadRequestProblem("bad_request", "tool", "the version that this run is held to is not registered now")
    args = with_defaults(schema, wanted.args)
    try:
        check_args(schema, args)
    except ArgsRefused as error:
        raise BadRequestProblem("invalid_args", f"args{error.field}", error.rule) from None
    return SessionCall(
        body=wanted.body,
        tool=wanted.tool,
        args=args,
        id=wanted.id,
        occurrence=wanted.occurrence,
        meaning=_meaning(args, pin.volatile) if wanted.by_model else None,
        repeat_of=wanted.repeat_of,
        reads=pin.effect_class is EffectClass.PURE and not pin.irreversible,
        frontier=_frontier(followed.body, asked),
    )


def completion(wanted: api.SessionCompleteBody, session: SessionBody, asked: Collection[str]) -> SessionComplete:
    """What ends a session."""
    return SessionComplete(body=wanted.body, result=wanted.result, frontier=_frontier(session, asked))


def payload_of(ask: SessionAsk) -> dict[str, Any]:
    """The payload of its signal; raises BadRequest: it is too large."""
    payload = ask.model_dump(mode="json", exclude_defaults=True)
    if is_longer(payload, bodies.MAX_PAYLOAD_BYTES):
        field_name = "result" if ask.complete is not None else "args"
        raise BadRequestProblem("bad_request", field_name, f"larger than {bodies.MAX_PAYLOAD_BYTES // 1024} KiB")
    return payload


def refusal(refused: AskRefused, session: SessionBody, asked: Collection[str]) -> BadRequestProblem | ConflictProblem:
    """What a client is told of an ask of which nothing comes."""
    match refused.code:
        case "superseded":
            return ConflictProblem("superseded", "another process has attached to this run")
        case "beside":
            return ConflictProblem("beside", "a process beside another asks only for what its models want: by_model")
        case "unasked":
            missing = list(session.unasked(asked))
            message = "calls were made before that were not asked for: ask for them first"
            return ConflictProblem("unasked", message, unasked=missing)
        case "changed":
            return ConflictProblem("changed", f"{refused.nodes[0]} is another call", node_id=refused.nodes[0])
        case "unknown_repeat":
            return BadRequestProblem("bad_request", "repeat_of", "names no equal call of this run")
        case "full":
            return ConflictProblem("session_full", "a run has no room for more calls: complete it, and begin another")
        case "over":
            return over(None)
        case _:
            return BadRequestProblem("bad_request", "args", "it can be no call: its arguments must be literal")


def over(status: str | None) -> ConflictProblem:
    """The refusal of what comes too late."""
    return ConflictProblem("session_over", f"the run {'is ending' if status is None else f'has {status}'}")


def call_answer(node_id: str, state: KeyState | None, *, result: Any, earlier: bool) -> api.SessionCallAnswer:
    """What came of a call; `result`: loaded, where it is large."""
    if state is None or state.status is not KeyStatus.SETTLED or state.outcome is None:
        return api.SessionCallAnswer(node_id=node_id, status="open")
    said: dict[str, Any] = {"result": result} if state.outcome is Settled.SUCCESS else {"sure": state.sure}
    duplicate = state.duplicate_of.model_dump(mode="json") if state.duplicate_of is not None else None
    said |= {"reason": state.reason, "rejected_by": state.rejected_by, "duplicate_of": duplicate}
    said |= {"external_id": state.external_id, "earlier": earlier}
    given = {name: one for name, one in said.items() if one is not None or name == "result"}
    return api.SessionCallAnswer.model_validate({"node_id": node_id, "status": state.outcome.value, **given})


def _meaning(args: Mapping[str, Any], volatile: Collection[str]) -> str:
    return digest({name: value for name, value in args.items() if name not in volatile})


def _frontier(session: SessionBody, asked: Collection[str]) -> str | None:
    return session.frontier if session.expected and not session.unasked(asked) else None


def _end(node_id: str, state: KeyState) -> CallEnd:
    if state.outcome is None:
        raise ValueError(node_id)
    took_none = state.sure or state.via is Via.HUMAN
    return CallEnd(node_id, state.outcome, took_none, state.result, state.reason, state.rejected_by)
