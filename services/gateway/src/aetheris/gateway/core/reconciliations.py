"""What came of a reconciliation: which effects are as they were left, which are not, which nobody can tell."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from aetheris.gateway.core.wire import payload_of
from aetheris.protocol.api import Reconciled
from aetheris.protocol.base.records import Record
from aetheris.protocol.fold.job_log import LoggedEvent, event_type_of
from aetheris.protocol.messages import events as ev
from aetheris.protocol.planning.confirmation import RecordedEffect, Verifies, to_ask, verdict

_ANSWERS = frozenset({"effect_confirmed", "confirmation_failed"})
_SHOWN = ("node_id", "idempotency_key", "resource", "reason", "detail", "evidence")


@dataclass(frozen=True, slots=True)
class ResourceCounts:
    """How many changed resources are asked about, and how many nobody can ask about."""

    effects: int
    unverifiable: int


_BESIDE = _ANSWERS | {"job_sealed", "violation_found"}
"""What is said of a job's effects, and does not change them."""


def last_of_effects(records: Sequence[Record]) -> int:
    """The offset up to which these records of a job say what it did: to read on is to read what others did since."""
    return max((record.offset for record in records if event_type_of(record) not in _BESIDE), default=-1)


ENDED = frozenset({"completed", "failed", "cancelled"})


@dataclass(frozen=True, slots=True)
class Schedule:
    """How often an ended job is looked at by itself, and for how long after its birth."""

    every: timedelta
    period: timedelta

    def due(self, status: str, created: datetime, now: datetime) -> bool:
        """Whether its turn may have come: it has ended, and is neither new nor old."""
        return status in ENDED and self.every <= now - created <= self.period

    def over(self, created: datetime, now: datetime) -> bool:
        """Whether it is too old, and so is every job before it."""
        return now - created > self.period


def wanted(effects: Iterable[RecordedEffect], silent: int, verifies: Verifies) -> ResourceCounts:
    """What a reconciliation of these effects asks; `silent` calls took effect and recorded nothing to compare."""
    found = list(effects)
    asked = sum(len(effect.changes) for effect, _ in to_ask(found, verifies))
    return ResourceCounts(asked, sum(len(effect.changes) for effect in found) - asked + silent)


def confirmation(logged: LoggedEvent, command_id: str) -> dict[str, Any] | None:
    """The answer to this command that an event is; None for any other event, and for one that is not the prober's."""
    event = logged.event
    if not isinstance(event, ev.EffectConfirmed | ev.ConfirmationFailed) or event.caused_by != command_id:
        return None
    body = payload_of(logged.record)
    shown = {name: body[name] for name in _SHOWN if body.get(name) is not None}
    return {"id": logged.id, "event": logged.type, **shown}


def answer(job_id: str, command_id: str, asked: ResourceCounts, reported: Sequence[Mapping[str, Any]]) -> Reconciled:
    """What POST /jobs/{id}/reconcile answers.

    `ok` only where every effect that can be asked about is confirmed, and nobody being asked was for want of effects.
    """
    confirmed = sum(one["event"] == "effect_confirmed" for one in reported)
    return Reconciled(
        job_id=job_id,
        command_id=command_id,
        asked=asked.effects,
        confirmed=confirmed,
        failed=len(reported) - confirmed,
        unverifiable=asked.unverifiable,
        verdict=verdict(asked.effects, confirmed, len(reported) - confirmed, asked.unverifiable),
        ok=confirmed == asked.effects and (asked.effects > 0 or asked.unverifiable == 0),
        effects=tuple(dict(one) for one in reported),
    )
