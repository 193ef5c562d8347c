"""Raw history: a job's records as they lie in the log, and what each of them says."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, cast

import jiter
from msgspec import MsgspecError, Struct
from msgspec.json import Decoder, Encoder

from aetheris.proofs.closed_values import CLOSED, unknown_value

_decode, _encode_into, _encode = Decoder().decode, Encoder().encode_into, Encoder().encode
_AGAIN: Any = bytearray()
"""What was written last; no code of ours runs between writing and comparing, so no other thread writes meanwhile."""
_TYPE = re.compile(rb"io\.aetheris\.([a-z0-9_]+)\.v([0-9]+)\Z")
READABLE_VERSION = b"1"
WITH_BODIES = b"2"
"""The version of a plan whose nodes plan calls themselves; no other plan is of it."""
MAX_DEPTH = 128
"""Levels of a record, beyond which nobody reads it."""
_OTHER = bytes(set(range(256)) - set(b"[]{}"))
_ONE_KIND = bytes.maketrans(b"[]{}", b"()()")
COVERED = ("ce_id", "ce_type", "ce_time", "ce_source")
"""The headers that a record's leaf covers, in that order."""
KNOWN_RULES = frozenset({1})
"""The versions of the rules by which jobs are proved: each names its own when it is created, 1 where it names none."""

EVENT_TYPES = frozenset(
    [
        "job_created",
        "decision_snapshot",
        "plan_generated",
        "node_finished",
        "state_checkpointed",
        "tool_invocation_started",
        "tool_invocation_finished",
        "command_committed",
        "state_changed",
        "policy_allowed",
        "approval_requested",
        "approval_voted",
        "approval_decided",
        "resolution_voted",
        "invocation_rejected",
        "invocation_cancel_requested",
        "retry_scheduled",
        "invocation_in_doubt",
        "invocation_probed",
        "worker_ended",
        "invocation_parked",
        "invocation_reopened",
        "effect_confirmed",
        "confirmation_failed",
        "step_compensated",
        "signal_received",
        "job_waiting",
        "wait_completed",
        "job_paused",
        "job_resumed",
        "job_frozen",
        "job_unfrozen",
        "cancel_requested",
        "job_stopping",
        "job_completed",
        "job_failed",
        "job_cancelled",
        "violation_found",
        "key_revoked",
        "birth_repeated",
        "call_planned",
        "workflow_accepted",
        "job_sealed",
    ]
)

Body = Mapping[str, Any]


class LoggedRecord(Protocol):
    """One record as it lies in a log, whoever has read it: exact bytes. Nothing changes it."""

    offset: int
    key: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    value: bytes


@dataclass(slots=True)
class RawRecord:
    """One record of a job's log: exact bytes."""

    offset: int
    key: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    value: bytes

    @property
    def named(self) -> Mapping[str, bytes]:
        """Its headers by name, of each name the first."""
        return by_name(self.headers)

    def header(self, name: str) -> bytes:
        """The first header of that name; what is missing counts as empty."""
        return self.named.get(name, b"")

    @property
    def repeated(self) -> Collection[str]:
        """Those headers that its leaf covers and that come more than once: nobody can say which of them counts."""
        return repeated_in(self.headers)


def by_name(headers: tuple[tuple[str, bytes], ...]) -> Mapping[str, bytes]:
    """Headers by name, of each name the first."""
    found = dict(headers)
    return found if len(found) == len(headers) else dict(reversed(headers))


def repeated_in(headers: tuple[tuple[str, bytes], ...]) -> Collection[str]:
    """Those headers that a leaf covers and that come more than once."""
    names = [name for name, _ in headers]
    return [name for name in COVERED if names.count(name) > 1]


class Fact(Struct, gc=False):  # of each record one, and none leads back to itself: the collector need not look
    """What a record says. `at` is its place in the job's history, counted from 0."""

    at: int
    offset: int
    event_id: str
    type: str
    body: Body
    time: str
    """When its writer says that it was written; no rule goes by it."""
    job: str = ""
    """The job that it names."""
    key: str = ""
    """The idempotency key that it is about."""
    invocation_id: str = ""
    """The try that it names."""
    node: str = ""
    """The node that it is about."""
    outcome: str = ""
    """How a call ended."""
    claims: str = ""
    """The type of what is not proved to be its writer's: it says nothing, and `type` is empty."""

    def text(self, name: str) -> str:
        """A text field; what is missing or no text counts as empty."""
        value = self.body.get(name)
        return value if type(value) is str else ""

    @property
    def worker(self) -> tuple[str, str] | None:
        """The worker that it names, and which life of it."""
        name, incarnation = self.body.get("worker_id"), self.body.get("incarnation")
        return (name, incarnation) if isinstance(name, str) and isinstance(incarnation, str) else None


def fact_of(  # noqa: PLR0917  as that of a fact
    at: int, offset: int, event_id: str, kind: str, body: Body, time: str = ""
) -> Fact:
    """What a record of a type says, by its body: what is asked for many times a record is looked up once."""
    get = body.get
    job = one if type(one := get("job_id")) is str else ""
    key = one if type(one := get("idempotency_key")) is str else ""
    invocation_id = one if type(one := get("invocation_id")) is str else ""
    node = one if type(one := get("node_id")) is str else ""
    outcome = one if type(one := get("outcome")) is str else ""
    return Fact(at, offset, event_id, kind, body, time, job, key, invocation_id, node, outcome)


@dataclass(frozen=True, slots=True, order=True)
class Violation:
    """A rule that history breaks, and the record that breaks it."""

    at: int
    rule: str
    event_id: str
    offset: int
    message: str

    def to_json(self) -> dict[str, Any]:
        """{rule, event_id, offset, message}."""
        return {
            "rule": self.rule,
            "event_id": self.event_id,
            "offset": self.offset,
            "message": self.message,
        }


def violation(rule: str, fact: Fact, message: str) -> Violation:
    """Name the record that breaks a rule; a message names ids and hashes, never results or arguments."""
    return Violation(fact.at, rule, fact.event_id, fact.offset, message)


def event_type(ce_type: bytes) -> bytes:
    """The snake_case name in a ce_type; what has another form is taken as it stands."""
    return _type(ce_type).chained


def read(record: LoggedRecord, at: int) -> tuple[Fact, Sequence[Violation]]:
    """What a record says, and what is wrong with the record itself.

    A record that can't be read, or has a header of those twice by which it is known, says nothing: its body is empty
    and its type too.
    """
    return read_named(record, by_name(record.headers), at)


def read_named(record: LoggedRecord, named: Mapping[str, bytes], at: int) -> tuple[Fact, Sequence[Violation]]:
    """The same; `named`: its headers by name."""
    get, repeated = named.get, repeated_in(record.headers) if len(named) < len(record.headers) else ()
    kind = _type(get("ce_type", b""))
    body = None if repeated else body_of(record.value)
    is_known = kind.is_readable and (not kind.is_conditional or body is None or _is_known(kind, body))
    newer = unknown_value(kind.name, body) if kind.is_closed and is_known and body is not None else None
    is_readable = is_known and newer is None
    name = kind.name if body is not None and is_readable else ""
    event_id, time = get("ce_id", b"").decode("utf-8", "replace"), get("ce_time", b"").decode("utf-8", "replace")
    fact = fact_of(at, record.offset, event_id, name, _NOTHING if body is None else body, time)
    found: Sequence[Violation] = ()
    if repeated:
        found = (violation("repeated_header", fact, f"it has more than one {' and '.join(repeated)}"),)
    elif body is None:
        found = (violation("undecodable", fact, "the value is not one JSON object that each reader reads"),)
    elif not is_readable:
        said = f"a value of {newer} that is not known here" if newer is not None else "a version that can't be judged"
        found = (violation("unknown_version", fact, f"{kind.name} has {said}"),)
    else:
        found = _repeated_fields(record.key, get("ce_subject"), fact)
    if kind.is_ambiguous or " " in event_id or "\n" in event_id:
        said = "ce_id or ce_type holds white space, which the chain can't tell"
        found = (*found, violation("ambiguous_header", fact, said))
    return fact, found


_NOTHING: Body = {}
_CONDITIONAL = frozenset({"job_created", "plan_generated"})
"""What can be read by what it says as well."""


def _is_known(kind: "_Type", body: Body) -> bool:
    """Whether a creation is under the rules that are proved here, and a plan says that it is of its version."""
    if kind.name == "plan_generated":
        return (body.get("bodies") is True) == (kind.version == WITH_BODIES)
    rules = body.get("rules", 1)
    return type(rules) is int and rules in KNOWN_RULES


@dataclass(frozen=True, slots=True)
class _Type:
    """What a ce_type says."""

    chained: bytes
    """The name as it enters the chain."""
    name: str
    version: bytes
    is_readable: bool
    is_ambiguous: bool
    is_conditional: bool
    is_closed: bool
    """Whether values stand in it of which all that there may be are known."""


@lru_cache(maxsize=256)
def _type(ce_type: bytes) -> _Type:
    """There are few: each is looked at once."""
    matched = _TYPE.match(ce_type)
    chained, version = (ce_type, b"") if matched is None else (matched[1], matched[2])
    name = chained.decode(errors="replace")
    is_readable = name not in EVENT_TYPES or version == READABLE_VERSION
    is_readable = is_readable or (name == "plan_generated" and version == WITH_BODIES)
    is_ambiguous = b" " in ce_type or b"\n" in ce_type
    return _Type(chained, name, version, is_readable, is_ambiguous, name in _CONDITIONAL, name in CLOSED)


def body_of(value: bytes) -> Body | None:
    """One JSON object without duplicate keys, lone surrogates and too many levels; None for anything else."""
    if nests_deeper(value, MAX_DEPTH):
        return None
    parsed: Any
    try:
        parsed = _decode(value)
        _encode_into(parsed, _AGAIN)
        is_whole = value == _AGAIN  # then no name stands there twice; what a service writes mostly is
    except (MsgspecError, ValueError, RecursionError, OverflowError):
        is_whole, parsed = False, None
    try:
        found = parsed if is_whole else _strictly(value)
    except ValueError:
        return None
    if type(found) is not dict:
        return None
    said: dict[str, Any] = found
    if is_whole and ("certificate" in said or "plan" in said or "task_graph" in said):
        _share(said)
    return said


_MOST_SHARED = 32 * 1024
"""Bytes of one that is held for others to share."""


def _share(body: dict[str, Any]) -> None:
    """What is most of a job's records, and the same in job after job: certificates, and the pins of plans."""
    if isinstance(body.get("certificate"), dict):
        body["certificate"] = _same(body["certificate"])
    for name in ("plan", "task_graph"):
        part: Any = body.get(name)
        if type(part) is dict and type(pins := cast("dict[str, Any]", part).get("tools")) is dict:
            part["tools"] = _same(pins)


def _same(value: Any) -> Any:
    """The object of the same value that other bodies have; nobody changes a body."""
    written = _encode(value)
    return _read_once(written) if len(written) <= _MOST_SHARED else value


@lru_cache(maxsize=256)
def _read_once(written: bytes) -> Any:
    return _decode(written)


def _strictly(value: bytes) -> Any:
    """Raises ValueError."""
    return jiter.from_json(value, allow_inf_nan=False, cache_mode="all", catch_duplicate_keys=True)


def nests_deeper(data: bytes, levels: int) -> bool:
    """Whether one JSON value, not parsed yet, nests deeper than so many levels; what is no JSON may seem to.

    Linear in its bytes.
    """
    if len(data) - len(data.replace(b"{", b"").replace(b"[", b"")) <= levels:  # `count` takes seven times as long
        return False
    outside = b"".join(data.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2])
    brackets = outside.translate(_ONE_KIND, _OTHER)
    for _ in range(levels):
        if not brackets:
            return False
        brackets = brackets.replace(b"()", b"")  # the innermost level of each part
    return bool(brackets)


def _repeated_fields(key: bytes | None, subject: bytes | None, fact: Fact) -> Sequence[Violation]:
    """No other header is in the chain, so one that repeats a payload field must equal it."""
    job = fact.job.encode("utf-8", "replace")
    is_keyed = key is None or key == job
    is_about = not subject or subject == fact.node.encode("utf-8", "replace") or subject == job
    if is_keyed and is_about:
        return ()
    found: list[Violation] = []
    if not is_keyed:
        found.append(violation("key_mismatch", fact, "the record's key is not the payload's job_id"))
    if not is_about:
        found.append(violation("subject_mismatch", fact, "ce_subject is neither the payload's node_id nor its job_id"))
    return found
