"""access.records: who came, what he was shown and what he was refused, as each gateway chains it (docs/audit.md)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

from aetheris.protocol.base.canonical import InvalidArgs, digest
from aetheris.protocol.base.principals import RecordedPrincipal
from aetheris.protocol.messages.commands import Message

NO_HEAD = "0" * 64
"""What the first record of a chain names as the head before it."""
OF_CHAIN = ("incarnation", "number", "previous", "head")
"""What of a record is no secret: it says where in its chain it lies."""


class AccessAction(StrEnum):
    """What was done."""

    STARTED = "started"
    """The gateway began, or is ending: a chain that lacks the end was cut off, or its gateway died."""
    STOPPED = "stopped"
    LOGIN = "login"
    REFUSED = "refused"
    READ = "read"
    EXPORT = "export"
    REQUESTS_SEEN = "requests_seen"
    """What humans are asked was shown."""
    DECIDED = "decided"
    """A human's word was taken: an answer, or what became of a call in doubt."""
    BROKE_GLASS = "broke_glass"
    """Somebody decided alone, in an emergency."""
    CONFIGURED = "configured"
    ACROSS = "across"
    """Jobs of another tenant were listed, or steered, by who administers."""
    LOST = "lost"
    """So many records could not be kept until Kafka took them."""


class AccessRecord(Message):
    """One access, without any payload; `head` is the SHA-256 of all else in it (JCS), so of all records before."""

    type_name: ClassVar[str] = "access"
    incarnation: str
    number: int
    previous: str
    at: str
    action: AccessAction
    tenant: str | None = None
    principal: RecordedPrincipal | None = None
    address: str | None = None
    route: str | None = None
    status: int | None = None
    subject: str | None = None
    other_tenant: str | None = None
    """Whose the subject is, where it is another tenant's than the principal's."""
    reason: str | None = None
    count: int = 1
    head: str


def chained(body: Mapping[str, Any], incarnation: str, number: int, previous: str) -> AccessRecord:
    """The record that says `body` at this place of a chain."""
    told = {name: value for name, value in body.items() if value is not None}
    told |= {"incarnation": incarnation, "number": number, "previous": previous}
    written = AccessRecord.model_validate(told | {"head": ""}).model_dump(mode="json", exclude_none=True)
    return AccessRecord.model_validate(written | {"head": _head(written)})


def _head(written: Mapping[str, Any]) -> str:
    return digest({name: value for name, value in written.items() if name != "head"})


def of_chain(written: Mapping[str, Any]) -> dict[str, Any]:
    """What anybody may see of a record: that it lies where it lies."""
    return {name: written[name] for name in OF_CHAIN if name in written} | {"hidden": True}


@dataclass(slots=True)
class AccessChains:
    """Whether records, in log order, are those of whole chains; `whole`: they begin where the log began."""

    whole: bool = True
    faults: list[str] = field(default_factory=list[str])
    count: int = 0
    _heads: dict[str, dict[int, str]] = field(default_factory=dict[str, dict[int, str]])

    @property
    def gateways(self) -> int:
        """How many chains there are."""
        return len(self._heads)

    def see(self, written: Mapping[str, Any]) -> bool:
        """Take in the next record; False for one that was written twice, which an unsure append may do."""
        try:
            place = _Place.of(written)
        except (KeyError, TypeError):
            self.faults.append("a record that is in no chain")
            return True
        heads, faults = self._heads.setdefault(place.incarnation, {}), list(_changed(written, place))
        if heads.get(place.number) == place.head and not faults:
            return False
        faults += self._unlinked(place, heads)
        self.faults += [f"gateway {place.incarnation}, record {place.number}: {fault}" for fault in faults]
        heads.setdefault(place.number, place.head)
        self.count += 1
        return True

    def _unlinked(self, place: "_Place", heads: Mapping[int, str]) -> Iterator[str]:
        if not heads:
            if self.whole and (place.number, place.previous) != (1, NO_HEAD):
                yield "what was before it is missing"
        elif place.number in heads:
            yield "there is another of this number"
        elif place.number - 1 not in heads:
            yield "the one before it is missing"
        elif place.previous != heads[place.number - 1]:
            yield "does not follow from the one before it"


@dataclass(frozen=True, slots=True)
class _Place:
    incarnation: str
    number: int
    previous: str
    head: str

    @classmethod
    def of(cls, written: Mapping[str, Any]) -> "_Place":
        return cls(str(written["incarnation"]), int(written["number"]), str(written["previous"]), str(written["head"]))


def _changed(written: Mapping[str, Any], place: _Place) -> Iterator[str]:
    if written.get("hidden") is True and set(written) == {*OF_CHAIN, "hidden"}:
        return
    try:
        if _head(written) != place.head:
            yield "is not as it was written"
    except InvalidArgs:
        yield "is not as it was written"
