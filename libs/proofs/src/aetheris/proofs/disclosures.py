"""What can be shown alone of a call: parts, each with a salt of its own, under a root that the job's seal states.

The records of a call can't be shown in part, and have plain hashes of its arguments in them. So of each call that an
external system has an id of, the seal has a leaf over salted digests (as RFC 9901, SD-JWT, has them): who is shown one
part learns nothing of the others, not even by trying values. The salts follow from what only the call's end has.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from aetheris.proofs.canonical import canonical, hash_or_empty
from aetheris.proofs.execution import UnreadableResult
from aetheris.proofs.history import SUCCESSES, History
from aetheris.proofs.merkle import leaf_hash, tree_root
from aetheris.proofs.recomputed_calls import RecomputedCalls
from aetheris.proofs.records import Fact
from aetheris.proofs.validity import Validity

CALL, ARGS, ARG = "call", "args", "args."
"""What is shown of every call; the names of its arguments; what stands before the name of each."""
OUTPUT_HASH = "output_hash"
OF_CALL = ("step", "outcome", "via", "external_id", "ended_at", "records")
"""What CALL says; `records`: the places of the call's start and end in the job."""
OF_START: Mapping[str, str] = {"tool": "tool_name", "version": "tool_version"}
OF_END = ("error", "evidence", "by", "principal", "usage")
NAMES = frozenset({CALL, ARGS, OUTPUT_HASH, *OF_START, *OF_END})
_SALTS = b"call1\x00"
_SALT_BYTES = 16
_SALT = re.compile(r"[0-9a-f]{32}")


class Disclosure(NamedTuple):
    """A part of a call, with its salt (16 bytes, hex)."""

    salt: str
    name: str
    value: Any

    @classmethod
    def of(cls, parsed: object) -> "Disclosure | None":
        """As a proof has it; None for what is none."""
        if not isinstance(parsed, list) or len(cast("list[Any]", parsed)) != 3:
            return None
        salt, name, value = cast("list[Any]", parsed)
        is_one = isinstance(name, str) and (name in NAMES or name.startswith(ARG))
        return cls(salt, name, value) if is_one and isinstance(salt, str) and _SALT.fullmatch(salt) else None

    def digest(self) -> bytes:
        """SHA-256(JCS([salt, name, value])).

        Raises:
            ValueError: the value has no canonical form.
        """
        return hashlib.sha256(canonical(list(self))).digest()


@dataclass(frozen=True, slots=True)
class DisclosableCall:
    """A try that succeeded, and its parts by their names."""

    start: Fact
    end: Fact
    parts: Mapping[str, Any]

    def disclosures(self) -> Iterator[tuple[bytes, Disclosure]]:
        """Its parts with their digests; what has no canonical form is none."""
        names = sorted(self.parts)
        secret = hash_or_empty([self.end.invocation_id, self.end.body.get("word"), self.end.body.get("sig")])
        salts = hashlib.shake_256(_SALTS + secret.encode()).hexdigest(_SALT_BYTES * len(names))
        for at, name in enumerate(names):
            one = Disclosure(salts[2 * _SALT_BYTES * at :][: 2 * _SALT_BYTES], name, self.parts[name])
            try:
                yield one.digest(), one
            except ValueError:
                continue

    @property
    def has_secret(self) -> bool:
        """Whether its salts follow from what only the record of its end has: the word of its try, or a signature."""
        return any(self.end.body.get(name) is not None for name in ("word", "sig"))

    def leaf(self) -> bytes:
        """Its leaf."""
        return leaf_of(digest for digest, _ in self.disclosures())


def leaf_of(digests: Iterable[bytes]) -> bytes:
    """A call's leaf hash: SHA-256(00 ‖ its digests, sorted), so that their order tells nothing."""
    return leaf_hash(b"".join(sorted(digests)))


def disclosable_calls(validity: Validity, calls: RecomputedCalls, count: int) -> list[DisclosableCall] | None:
    """Of the first `count` records, the calls that the external system has an id of, in the order in which they ended.

    None where the records don't tell what one of them was: then they break a rule, or a large result is not here.
    """
    found: list[DisclosableCall] = []
    for start, end in _succeeded(validity) if validity.history.external else ():
        if end.at >= count or not end.text("external_id"):
            continue
        try:
            call = calls.call_of(start)
        except UnreadableResult:
            return None
        if call is None or call.args_hash != start.text("args_hash"):
            return None
        found.append(DisclosableCall(start, end, _parts(start, end, call.args)))
    return sorted(found, key=lambda one: (one.end.at, one.start.at))


def calls_root(validity: Validity, calls: RecomputedCalls, count: int) -> str | None:
    """What a seal over so many records states of its calls: their tree's root, in hex; empty where there are none.

    None as for `disclosable_calls`.
    """
    found = disclosable_calls(validity, calls, count)
    if not found:
        return None if found is None else ""
    return tree_root([one.leaf() for one in found]).hex()


def success_of(history: History, start: Fact) -> Fact | None:
    """The first record that says that a try succeeded."""
    ends = history.finishes.get((start.key, start.invocation_id), ())
    return next((fact for fact in ends if fact.at > start.at and fact.outcome in SUCCESSES), None)


def _succeeded(validity: Validity) -> Iterator[tuple[Fact, Fact]]:
    for start in validity.history.starts:
        end = success_of(validity.history, start)
        if end is not None and validity.is_valid(start):
            yield start, end


def _parts(start: Fact, end: Fact, args: Mapping[str, Any]) -> dict[str, Any]:
    says = (start.node, end.outcome, end.text("via"), end.text("external_id"), end.time, [start.at, end.at])
    return {
        CALL: dict(zip(OF_CALL, says, strict=True)),
        **{name: start.text(field) for name, field in OF_START.items()},
        OUTPUT_HASH: end.text(OUTPUT_HASH),
        **{name: value for name in OF_END if (value := end.body.get(name)) is not None},
        ARGS: sorted(args),
        **{ARG + name: value for name, value in args.items()},
    }
