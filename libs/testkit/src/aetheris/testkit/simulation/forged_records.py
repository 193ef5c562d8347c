"""Who may append whatever he can make, without the keys of those who sign it (docs/simulation.md).

He says what its writer would have to sign: permissions, ends, cancels, births, seals. He has the bytes of all that lies
in the log, a root of his own, the key of a service that writes nothing here, and signatures of the true keys over
whatever he likes, each for another place than that where he lays it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from aetheris.protocol.base.freeze_scope import FreezeScope
from aetheris.protocol.base.ids import event_id
from aetheris.protocol.base.records import Draft
from aetheris.protocol.base.signing import (
    RecordSignature,
    SignedPlace,
    born_of,
    read_signed,
    root_of,
    signed_value,
    statement,
)
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.writers import SIGNING, KnownBy, Party
from aetheris.protocol.fold.provenance import place_of, writer_of
from aetheris.protocol.fold.state import JobState, KeyState
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import Answer, Decision, Outcome, RejectReason, Via
from aetheris.protocol.messages.events import Event
from aetheris.testkit.simulation.installation import CLOCK, OTHER, drafts_of, installation, revoked_elsewhere, signer
from aetheris.testkit.simulation.log import Entry, WholeBatch
from aetheris.testkit.simulation.tape import Tape

HIS = Party.GATEWAY
"""Whose key he has, certified under the installation's own root."""

_SIG = b',"sig":'


def needs_signature(event: Event) -> bool:
    """Whether only its writer's signature makes it count; so does nothing where nobody may say it."""
    rule = writer_of(event)
    if rule is None or rule.known_by is KnownBy.ROOT:
        return True
    return rule.known_by is KnownBy.SIGNATURE and rule.writer in SIGNING


def forged_records(tape: Tape, job: JobState, entries: Sequence[Entry], tenant: str) -> tuple[str, WholeBatch | None]:
    """(how he does it, what he appends) about a job; nothing where he has nothing to do it with."""
    how, forge = tape.pick(WAYS)
    said = [one for one in _sayings(job, _key_of(tape, job), tenant) if needs_signature(one)]
    events = [tape.pick(said) for _ in range(1 + tape.below(3))]
    bodies = tuple((_id_of(tape, event), event) for event in events)
    drafts = drafts_of(WholeBatch(Topic.JOBS_EVENTS, bodies))
    forged = [forge(tape, event, one, entries) for event, one in zip(events, drafts, strict=True)]
    return how, WholeBatch(Topic.JOBS_EVENTS, bodies, tuple(forged), forged=True)


def altered_paths(tape: Tape, entries: Sequence[Entry]) -> WholeBatch | None:
    """A record of a batch once more, with another way to a root; now and then it leads to the one that was signed."""
    found = [one for one in entries if _path_of(one)]
    if not found:
        return None
    entry = tape.pick(found)
    payload, signature = read_signed(entry.record.value) or (b"", RecordSignature("", b""))
    path = signature.path
    altered = tape.pick(
        (
            replace(signature, path=path[:-1]),
            replace(signature, path=(*path, path[0])),
            replace(signature, path=(bytes(32), *path[1:])),
            replace(signature, index=signature.index ^ 1),
            replace(signature, size=signature.size + 1),
            replace(signature, index=0, size=1, path=()),
        )
    )
    said = statement(_place(entry.body, entries), payload)
    drafts = (Draft(Topic.JOBS_EVENTS, entry.record.key or b"", signed_value(payload, altered), entry.record.headers),)
    forged = root_of(said, altered) != root_of(said, signature)
    return WholeBatch(Topic.JOBS_EVENTS, ((entry.id, entry.body),), drafts, forged=forged)


# how


def _unsigned(_tape: Tape, _event: Event, draft: Draft, _entries: Sequence[Entry]) -> Draft:
    return draft


def _copied(tape: Tape, event: Event, draft: Draft, entries: Sequence[Entry]) -> Draft:
    """With the signature of another record, of the same job where there is one."""
    signed = [one for one in entries if _SIG in one.record.value]
    same = [one for one in signed if one.body.job_id == event.job_id]
    if not signed:
        return draft
    tail = tape.pick(same or signed).record.value.rpartition(_SIG)[2]
    return draft.replaced(value=draft.value[:-1] + _SIG + tail)


def _of_another_root(_tape: Tape, event: Event, draft: Draft, entries: Sequence[Entry]) -> Draft:
    return _signed(draft, _place(event, entries), _writer(event), OTHER)


def _of_another_service(_tape: Tape, event: Event, draft: Draft, entries: Sequence[Entry]) -> Draft:
    return _signed(draft, _place(event, entries), HIS)


def _for(elsewhere: Callable[[SignedPlace], SignedPlace]) -> "Forge":
    """The true writer's signature, given for another place."""

    def forge(_tape: Tape, event: Event, draft: Draft, entries: Sequence[Entry]) -> Draft:
        return _signed(draft, elsewhere(_place(event, entries)), _writer(event))

    return forge


Forge = Callable[[Tape, Event, Draft, Sequence[Entry]], Draft]

WAYS: tuple[tuple[str, Forge], ...] = (
    ("unsigned", _unsigned),
    ("with the signature of another record", _copied),
    ("under another root", _of_another_root),
    ("with another service's key", _of_another_service),
    ("with a signature for another birth", _for(lambda place: replace(place, born="0" * 64))),
    ("with a signature for another job", _for(lambda place: replace(place, key="another"))),
    ("with a signature for another topic", _for(lambda place: replace(place, topic=Topic.JOBS_INDEX))),
    ("with a signature for another type", _for(lambda place: replace(place, type="another"))),
    ("with a signature for another installation", _for(lambda place: replace(place, installation=installation(OTHER)))),
)


def _signed(draft: Draft, place: SignedPlace, party: Party, root: str | None = None) -> Draft:
    key = signer(party) if root is None else signer(party, root)
    payload = draft.value[:-1] + b',"certificate":' + key.certificate_json + b"}"
    (value,) = key.sign([(place, payload)], CLOCK.now())
    return draft.replaced(value=value)


def _place(event: Event, entries: Sequence[Entry]) -> SignedPlace:
    births = (one for one in entries if isinstance(one.body, ev.JobCreated) and one.body.job_id == event.job_id)
    birth = next(births, None)
    born = born_of(birth.record.value) if birth is not None else None
    return place_of(installation(), event.event_type, event.job_id, born)


def _writer(event: Event) -> Party:
    rule = writer_of(event)
    return rule.writer if rule is not None else Party.LEDGER


def _path_of(entry: Entry) -> tuple[bytes, ...]:
    found = read_signed(entry.record.value) if b'"path":' in entry.record.value else None
    return found[1].path if found is not None else ()


# what


def _key_of(tape: Tape, job: JobState) -> tuple[str, KeyState] | None:
    found = sorted(job.keys)
    if not found:
        return None
    key = tape.pick(found)
    return key, job.keys[key]


def _sayings(job: JobState, call: tuple[str, KeyState] | None, tenant: str) -> list[Event]:
    """Whatever might change what becomes of the job, had its writer said it."""
    return [*_of_the_job(job, tenant), *(_of_a_call(job, *call) if call is not None else ())]


def _of_the_job(job: JobState, tenant: str) -> Iterable[Event]:
    job_id, scope = job.job_id, FreezeScope(tenant=tenant)
    yield ev.JobCompleted(job_id=job_id, result=None)
    yield ev.JobFailed(job_id=job_id, error="forged")
    yield ev.JobCancelled(job_id=job_id, by="forger")
    yield ev.CancelRequested(job_id=job_id, by="forger", compensate=True)
    yield ev.JobPaused(job_id=job_id, by="forger", number=job.pauses + 1)
    yield ev.JobResumed(job_id=job_id, by="forger", number=max(1, job.pauses))
    yield ev.JobStopping(job_id=job_id, by="forger", reason="forged", up_to_revision=max(0, job.revision))
    yield ev.BirthRepeated(job_id=job_id, birth=-1)
    yield ev.JobFrozen(job_id=job_id, scope=scope, number=job.freezes.get(scope, 0) + 1, by="forger", at="")
    for freeze in job.frozen.values():
        yield ev.JobUnfrozen(job_id=job_id, scope=freeze.scope, number=freeze.number, by="forger", at="")
    yield ev.ViolationFound(job_id=job_id, rule="forged", event_id="e", offset=0, message="forged")
    yield ev.JobSealed(
        job_id=job_id,
        tenant=tenant,
        event_count=0,
        root="",
        chain=2,
        tree="",
        execution_hash="",
        outcome_hash="",
        sealed_at="",
        signature="",
        key_id="",
    )
    yield job.created.model_copy(update={"job_id": f"made-up-{job_id}", "installation": installation()})
    yield job.created.model_copy(update={"job_id": f"elsewhere-{job_id}", "installation": installation(OTHER)})
    for party in (Party.PLANNER, Party.LEDGER):
        yield ev.KeyRevoked.model_validate({"job_id": job_id, **revoked_elsewhere(party).to_json()})
    yield ev.SignalReceived(job_id=job_id, correlation_key="go", payload={"forged": True})
    for waits in job.open_waits.values():
        told: dict[str, Any] = waits.model_dump(include={"node_id", "idempotency_key", "correlation_key", "wait_type"})
        yield ev.WaitCompleted(job_id=job_id, payload={"forged": True}, **told)
    for state in job.keys.values():
        for invocation in state.invocations.values():
            worker_id, incarnation = invocation.worker_id, invocation.incarnation
            yield ev.WorkerEnded(job_id=job_id, worker_id=worker_id, incarnation=incarnation, how="lock")


def _of_a_call(job: JobState, key: str, state: KeyState) -> Iterable[Event]:
    about: dict[str, Any] = {"job_id": job.job_id, "node_id": state.node_id, "idempotency_key": key}
    entry = job.entry(state.node_id)
    asked: dict[str, Any] = {"args_hash": "a", "tool_version": "1" if entry is None else entry.tool_version}
    if state.requested is not None:
        asked["args_hash"] = state.requested.args_hash
    yield ev.PolicyAllowed(**about, **asked, rule="all")
    token = None if state.asks == 1 else state.asks
    for decision in (Decision.APPROVE, Decision.REJECT):
        yield ev.ApprovalDecided(**about, **asked, rule="ask", decision=decision, approver="bob", token=token)
    yield ev.ApprovalVoted(**about, **asked, rule="ask", approver="bob", token=token)
    yield ev.InvocationRejected(**about, reason=RejectReason.CANCELLED, by="bob")
    for invocation_id in sorted(state.unresolved):
        external_key = state.invocations[invocation_id].external_key
        tried: dict[str, Any] = about | {"invocation_id": invocation_id}
        yield ev.InvocationReopened(**tried, next_token=state.fencing_token + 1, by="policy")
        yield ev.InvocationReopened(**tried, next_token=state.fencing_token + 1, by="human")
        yield ev.InvocationParked(**tried, reason="forged")
        yield ev.InvocationInDoubt(**tried, error_class="Forged")
        result = {"forged": True}
        yield ev.ToolInvocationFinished(**tried, outcome=Outcome.SUCCESS, via=Via.PROBE, result=result)
        yield ev.ToolInvocationFinished(**tried, outcome=Outcome.PERMANENT, via=Via.LEDGER, error="forged")
        yield ev.ToolInvocationFinished(**tried, outcome=Outcome.PERMANENT, via=Via.HUMAN, error="forged")
        yield ev.InvocationProbed(**tried, external_key=external_key, ask="forged", answer=Answer.NOT_FOUND)


def _id_of(tape: Tape, event: Event) -> str:
    """Now and then one that its writer may yet use."""
    if tape.chance(0.5):
        return event_id(event.job_id, event.event_type)
    return f"forged-{tape.draw()}"
