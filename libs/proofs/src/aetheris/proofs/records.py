"""Raw history: a job's records as they lie in the log, and what each of them says."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, cast

import jiter
from msgspec import MsgspecError
from msgspec.json import Decoder, Encoder

_decode, _encode = Decoder().decode, Encoder().encode
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
        "session_attached",
        "workflow_accepted",
        "job_sealed",
    ]
)

Body = Mapping[str, Any]


@dataclass(slots=True)
class RawRecord:
    """One record of a job's log: exact bytes."""

    offset: int
    key: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    value: bytes

    _named: dict[str, bytes] | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def named(self) -> Mapping[str, bytes]:
        """Its headers by name, of each name the first. Asked for several times a record, so made once."""
        found = self._named
        if found is None:
            found = dict(self.headers)
            if len(found) < len(self.headers):
                found = dict(reversed(self.headers))
            self._named = found
        return found

    def header(self, name: str) -> bytes:
        """The first header of that name; what is missing counts as empty."""
        return self.named.get(name, b"")

    @property
    def repeated(self) -> Collection[str]:
        """Those headers that its leaf covers and that come more than once: nobody can say which of them counts."""
        if len(self.named) == len(self.headers):
            return ()
        names = [name for name, _ in self.headers]
        return [name for name in COVERED if names.count(name) > 1]


@dataclass(slots=True, init=False)
class Fact:
    """What a record says. `at` is its place in the job's history, counted from 0."""

    at: int
    offset: int
    event_id: str
    type: str
    body: Body
    time: str
    """When its writer says that it was written; no rule goes by it."""
    claims: str
    """The type of what is not proved to be its writer's: it says nothing, and `type` is empty."""
    job: str
    """The job that it names."""
    key: str
    """The idempotency key that it is about."""
    invocation_id: str
    """The try that it names."""
    node: str
    """The node that it is about."""
    outcome: str
    """How a call ended."""

    def __init__(  # noqa: PLR0917  as that of any dataclass, but in one call
        self, at: int, offset: int, event_id: str, kind: str, body: Body, time: str = ""
    ) -> None:
        self.at, self.offset, self.event_id, self.type, self.body, self.time = at, offset, event_id, kind, body, time
        self.claims = ""
        # asked for many times a record, so looked up once; of each record, so without a call for each
        get = body.get
        self.job = one if type(one := get("job_id")) is str else ""
        self.key = one if type(one := get("idempotency_key")) is str else ""
        self.invocation_id = one if type(one := get("invocation_id")) is str else ""
        self.node = one if type(one := get("node_id")) is str else ""
        self.outcome = one if type(one := get("outcome")) is str else ""

    def text(self, name: str) -> str:
        """A text field; what is missing or no text counts as empty."""
        value = self.body.get(name)
        return value if isinstance(value, str) else ""

    @property
    def worker(self) -> tuple[str, str] | None:
        """The worker that it names, and which life of it."""
        name, incarnation = self.body.get("worker_id"), self.body.get("incarnation")
        return (name, incarnation) if isinstance(name, str) and isinstance(incarnation, str) else None


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


def read(record: RawRecord, at: int) -> tuple[Fact, list[Violation]]:
    """What a record says, and what is wrong with the record itself.

    A record that can't be read, or has a header of those twice by which it is known, says nothing: its body is empty
    and its type too.
    """
    headers = record.named
    get, repeated = headers.get, record.repeated if len(headers) < len(record.headers) else ()
    ce_id, kind = get("ce_id", b""), _type(get("ce_type", b""))
    body = None if repeated else body_of(record.value)
    is_readable = kind.is_readable and (kind.name not in _CONDITIONAL or body is None or _is_known(kind, body))
    name = kind.name if body is not None and is_readable else ""
    event_id, time = ce_id.decode("utf-8", "replace"), get("ce_time", b"").decode("utf-8", "replace")
    fact = Fact(at, record.offset, event_id, name, {} if body is None else body, time)
    found: list[Violation] = []
    if repeated:
        found.append(violation("repeated_header", fact, f"it has more than one {' and '.join(repeated)}"))
    elif body is None:
        found.append(violation("undecodable", fact, "the value is not one JSON object that each reader reads"))
    elif not is_readable:
        found.append(violation("unknown_version", fact, f"{kind.name} has a version that can't be judged"))
    else:
        found = _repeated_fields(record.key, get("ce_subject", b""), fact)
    if kind.is_ambiguous or b" " in ce_id or b"\n" in ce_id:
        found.append(
            violation("ambiguous_header", fact, "ce_id or ce_type holds white space, which the chain can't tell")
        )
    return fact, found


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


@lru_cache(maxsize=256)
def _type(ce_type: bytes) -> _Type:
    """There are few: each is looked at once."""
    matched = _TYPE.match(ce_type)
    chained, version = (ce_type, b"") if matched is None else (matched[1], matched[2])
    name = chained.decode(errors="replace")
    is_readable = name not in EVENT_TYPES or version == READABLE_VERSION
    is_readable = is_readable or (name == "plan_generated" and version == WITH_BODIES)
    return _Type(chained, name, version, is_readable, b" " in ce_type or b"\n" in ce_type)


def body_of(value: bytes) -> Body | None:
    """One JSON object without duplicate keys, lone surrogates and too many levels; None for anything else."""
    if nests_deeper(value, MAX_DEPTH):
        return None
    parsed: object
    try:
        parsed = _decode(value)
        is_whole = _encode(parsed) == value  # then no name stands there twice; what a service writes mostly is
    except (MsgspecError, ValueError, RecursionError, OverflowError):
        is_whole, parsed = False, None
    try:
        found = parsed if is_whole else _strictly(value)
    except ValueError:
        return None
    return cast("Body", found) if isinstance(found, dict) else None


def _strictly(value: bytes) -> object:
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


def _repeated_fields(key: bytes | None, subject: bytes, fact: Fact) -> list[Violation]:
    """No other header is in the chain, so one that repeats a payload field must equal it."""
    found: list[Violation] = []
    job = fact.job.encode(errors="replace")
    if key is not None and key != job:
        found.append(violation("key_mismatch", fact, "the record's key is not the payload's job_id"))
    if subject and subject not in (job, fact.node.encode(errors="replace")):
        found.append(violation("subject_mismatch", fact, "ce_subject is neither the payload's node_id nor its job_id"))
    return found
