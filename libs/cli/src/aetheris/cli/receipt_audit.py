"""Receipts against the log of seals and their jobs' streams, as the HTTP API shows them (docs/receipts.md).

Nothing that a service says is believed but what a trusted key has signed, and lies in the log of seals. What is seen of
a job is kept beside its receipts: whoever writes it anew later contradicts that. What could not be asked, or read, is
named, and the rest is judged all the same.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import ValidationError

from aetheris.cli import streamfile
from aetheris.cli.console import CommandError, Exit
from aetheris.cli.receipts import SUFFIX, sent_with
from aetheris.cli.sent_requests import difference
from aetheris.proofs.chain import EventChain
from aetheris.proofs.claims import log_entry, read_claim
from aetheris.proofs.log_lines import answers_of, interim_of, read_line, receipt_hash
from aetheris.proofs.notes import BadNote, Checkpoint, open_checkpoint, open_consistency, open_inclusion
from aetheris.proofs.records import RawRecord, body_of, event_type
from aetheris.proofs.trust import SEAL, TrustedKey, keyring, moment
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.submission_numbers import Receipt
from aetheris.protocol.tables.signed_messages import SignedMessages
from aetheris.runtime.base.whole_file import write_whole
from aetheris.sdk.client import ApiError, Client, Conflict, ResourceNotFound, Unreachable

T = TypeVar("T")

CHECKPOINT = "checkpoint"
SEEN = ".seen.json"

ANSWERED_WITHIN_S = 600.0
"""After so long a receipt that no line answers is evidence of omission."""
OPEN_WITHIN_S = 7200.0
"""So old the last word on an open job may be: interim seals come hourly."""
_AHEAD = timedelta(minutes=5)
"""So far another's clock may be ahead of ours."""
_LONGEST_FILE = 16 * 1024 * 1024
_MOST_IN_VAIN = 3
"""Receipts that nobody answered for, one after another: of the rest nobody is asked."""


class _Broken(Exception):
    """What a receipt's job is not as it must be."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(message)
        self.rule = rule


class _Unreadable(Exception):
    """A file of the folder that can't be used."""


@dataclass
class ReceiptAudit:
    """One look at all receipts of a folder; `roots`: key ids of those under which gateways sign."""

    client: Client
    folder: Path
    keys: Sequence[TrustedKey]
    roots: Collection[str]
    now: datetime
    answered_within_s: float = ANSWERED_WITHIN_S
    open_within_s: float = OPEN_WITHIN_S
    _head: Checkpoint | None = None
    """Of the log that is looked at."""
    _known: set[tuple[int, bytes]] = field(default_factory=set[tuple[int, bytes]])
    """(size, root) of what was found to be one tree with it."""
    _violations: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    _standing: dict[str, int] = field(default_factory=dict[str, int])
    _not_asked: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    _in_vain: int = 0

    def run(self) -> dict[str, Any]:
        """{ok, receipts, standing → how many, not_asked, violations}; ok only where all was asked.

        Raises:
            CommandError: the folder has no receipts.
            OSError: it can't be written.
        """
        files = sorted(self.folder.glob(f"*{SUFFIX}"))
        if not files:
            raise CommandError(Exit.BAD_INPUT, "no_receipts", f"{self.folder} holds no receipts (*{SUFFIX})")
        self._look_at_log()
        for path in files:
            self._look_at(path)
        return {
            "ok": not self._violations and not self._not_asked,
            "receipts": len(files),
            **self._standing,
            "not_asked": self._not_asked,
            "violations": self._violations,
        }

    def _look_at_log(self) -> None:
        """It only grew since it was looked at last."""
        kept, is_readable = self.folder / CHECKPOINT, True
        try:
            before = self._kept_checkpoint(kept)
        except _Unreadable as error:
            before, is_readable = None, False
            self._violate("unreadable", kept, "", str(error))
        try:
            opened = open_checkpoint(self._ask(self.client.checkpoint), self.keys, self.now)
            if before is not None:
                open_consistency(self._consistency(before), before, self.keys, self.now)
        except (BadNote, ResourceNotFound) as error:
            self._violate("log_rewritten", kept, "", str(error))
        except ApiError as error:
            self._leave(kept, "", error)
        else:
            self._head = opened
            if is_readable:
                write_whole(kept, opened.note.encode())

    def _consistency(self, old: Checkpoint) -> str:
        return self._ask(lambda: self.client.consistency(old.size))

    def _kept_checkpoint(self, path: Path) -> Checkpoint | None:
        try:
            kept = _content(path)
            return None if kept is None else open_checkpoint(kept.decode(), self.keys)
        except (UnicodeDecodeError, BadNote) as error:
            said = error.message if isinstance(error, BadNote) else "no text"
            raise _Unreadable(f"{path.name}, kept of the log of seals, can't be used ({said}): move it away") from None

    def _look_at(self, path: Path) -> None:
        job_id = ""
        try:
            receipt = self._read(path)
            job_id = receipt.job_id
            if self._in_vain >= _MOST_IN_VAIN:
                raise Unreachable("unreachable", f"nobody answered for the {_MOST_IN_VAIN} receipts before it")
            standing, self._in_vain = self._standing_of(receipt, sent_with(path)), 0
        except _Broken as broken:
            standing, self._in_vain = broken.rule, 0
            self._violate(broken.rule, path, job_id, str(broken))
        except ApiError as error:
            standing = "not_told"
            self._leave(path, job_id, error)
        except CommandError as error:  # a stream that is none
            standing = "not_told"
            self._leave(path, job_id, ApiError(error.code, error.message))
        self._standing[standing] = self._standing.get(standing, 0) + 1

    def _violate(self, rule: str, path: Path, job_id: str, message: str) -> None:
        self._violations.append({"rule": rule, "job_id": job_id, "receipt": path.name, "message": message})

    def _leave(self, path: Path, job_id: str, error: ApiError) -> None:
        """Of this nothing is known: it was asked in vain, or of somebody who may not tell."""
        self._in_vain += isinstance(error, Unreachable)
        self._not_asked.append({"job_id": job_id, "receipt": path.name, "code": error.code, "message": error.message})

    def _check_tenant(self, receipt: Receipt) -> None:
        """Of another tenant's jobs the gateway says that there are none.

        Raises:
            ApiError: the token is another tenant's, or the gateway can't tell whose it is.
        """
        if receipt.tenant != self._tenant:
            message = f"it is of tenant {receipt.tenant}, and the token of tenant {self._tenant}"
            raise ApiError("other_tenant", message)

    @cached_property
    def _tenant(self) -> str:
        """Whose the token is, as the gateway says: who lies so is believed no more than who says nothing."""
        return self._ask(lambda: str(self.client.limits()["tenant"]))

    def _ask(self, question: Callable[[], T]) -> T:
        """An answer of the API; raises ApiError, also where it is none."""
        try:
            return question()
        except (KeyError, TypeError, AttributeError, ValueError):
            raise ApiError("bad_answer", "what the gateway answers is no answer to this") from None

    def _read(self, path: Path) -> Receipt:
        try:
            value = _content(path) or b""
            receipt = Receipt.model_validate_json(value)
        except (_Unreadable, ValidationError) as error:
            why = str(error) if isinstance(error, _Unreadable) else "it can't be read"
            raise _Broken("bad_receipt", why) from None
        named = str(Topic.JOBS_COMMANDS), Receipt.type_name, receipt.job_id.encode()
        if not SignedMessages(self.roots).counts(*named, value):
            raise _Broken("bad_receipt", "no gateway of this installation has signed it")
        if "/" in receipt.job_id or "\0" in receipt.job_id:
            raise _Broken("bad_receipt", "it names no job")
        return receipt

    def _standing_of(self, receipt: Receipt, sent: Path) -> str:
        given = moment(receipt.receipt.at)
        if given is None:
            raise _Broken("bad_receipt", "its time can't be read")
        if given > self.now + _AHEAD:
            raise _Broken("bad_receipt", f"it says that it was given at {receipt.receipt.at}, which is yet to come")
        answers = self._answers(receipt)
        if not answers and self.now - given <= timedelta(seconds=self.answered_within_s):
            return "pending"
        if not answers:
            raise _Broken("left_out", f"the log of seals has no answer to it, which was given at {receipt.receipt.at}")
        if {"born", "same_as"}.isdisjoint(answers):
            return self._not_created(answers, given)
        return self._job(receipt, sent, given, is_birth="born" in answers)

    def _not_created(self, answers: set[str], given: datetime) -> str:
        said = ", ".join(sorted(answers))
        if "void" in answers or not answers <= {"waits", "refused"}:
            raise _Broken("left_out", f"it was given, and the log of seals says of it: {said}")
        if "refused" in answers:
            raise _Broken("refused", "it was given, and the planner says that no job comes of it")
        if self.now - given > timedelta(seconds=self.open_within_s):
            raise _Broken("left_out", f"it waits for room, it is said, since {given.isoformat()}")
        return "waits"

    def _answers(self, receipt: Receipt) -> set[str]:
        named = receipt_hash(
            receipt.job_id, receipt.tenant, receipt.request_hash, receipt.receipt.model_dump(mode="json")
        )
        lines = self._lines(self._ask(lambda: self.client.answers(named)), self.now)
        return {answer for said, _ in lines for answer in answers_of(said, named)}

    def _lines(
        self, shown: Sequence[Mapping[str, str]], now: datetime | None
    ) -> list[tuple[Mapping[str, Any], Mapping[str, str]]]:
        """What lines say that a trusted key has signed, and that lie in the log of seals."""
        found: list[tuple[Mapping[str, Any], Mapping[str, str]]] = []
        keys = keyring(self.keys, SEAL)
        for one in _shown(shown):
            line = _bytes_of(one)
            said = read_line(line, keys)
            if said is not None and self._is_logged(line, one["proof"], now):
                found.append((said, one))
        return found

    def _kept_lines(
        self, kept: Sequence[Mapping[str, str]], path: Path, job_id: str
    ) -> list[tuple[Mapping[str, Any], Mapping[str, str]]]:
        """What we kept counts, and is kept, though nobody shows any more that it lies in the log: that is named."""
        keys = keyring(self.keys, SEAL)  # a key that has retired since had not then
        found = [(said, one) for one in kept if (said := read_line(_bytes_of(one), keys)) is not None]
        if not all(self._is_logged(_bytes_of(one), one["proof"], None) for _, one in found):
            self._violate("log_rewritten", path, job_id, "what was kept of it is not shown to lie in the log any more")
        return found

    def _is_logged(self, line: bytes, proof: str, now: datetime | None) -> bool:
        try:
            _, seen = open_inclusion(proof, log_entry(line), self.keys, now)
            return self._head is None or self._is_same_log(self._head, seen)
        except (BadNote, ResourceNotFound):
            return False

    def _is_same_log(self, head: Checkpoint, seen: Checkpoint) -> bool:
        """Whether a proof's checkpoint and the one that was looked at are of one tree, which may grow meanwhile."""
        for _ in range(5):
            if (seen.size, seen.root) in self._known | {(head.size, head.root)}:
                return True
            grown, other = (open_consistency(self._consistency(one), one, self.keys, self.now) for one in (head, seen))
            if (grown.size, grown.root) == (other.size, other.root):
                self._known.add((seen.size, seen.root))
        return False

    def _job(self, receipt: Receipt, sent: Path, given: datetime, *, is_birth: bool) -> str:
        """How the job stands that a receipt's number created, or names."""
        job_id = receipt.job_id
        try:
            records = self._ask(lambda: list(streamfile.of_answer(self.client.raw_stream(job_id)).raw()))
        except ResourceNotFound:
            self._check_tenant(receipt)
            raise _Broken("left_out", "the log of seals says that its job was created, and there is none") from None
        chain = EventChain()
        for record in records:
            chain.add(record)
        self._check_birth(receipt, records, is_birth=is_birth)
        self._check_sent(receipt, sent, records)
        interim = self._lines(self._ask(lambda: self.client.interim_seals(job_id)), self.now)
        self._check_seen(job_id, chain, interim)
        sealed = [record for record in _seals(records) if self._is_sealed(record, chain)]  # each, not one of them
        if sealed:
            self._check_logged(job_id, sealed)
            return "sealed"
        times = (moment(str(said.get("at"))) for said, _ in interim)
        said_at = max((at for at in times if at is not None and at <= self.now + _AHEAD), default=given)
        if self.now - said_at > timedelta(seconds=self.open_within_s):
            raise _Broken("never_ended", f"it is not sealed, and nothing was said of it since {said_at.isoformat()}")
        return "open"

    def _check_birth(self, receipt: Receipt, records: Sequence[RawRecord], *, is_birth: bool) -> None:
        created = (body_of(records[0].value) if records else None) or {}
        named = created.get("job_id"), created.get("tenant"), created.get("request_hash")
        if named != (receipt.job_id, receipt.tenant, receipt.request_hash):
            raise _Broken("rewritten", "its job begins with another submission")
        if is_birth and created.get("receipt") != receipt.receipt.model_dump(mode="json"):
            raise _Broken("rewritten", "its job begins with another receipt's number")

    def _check_sent(self, receipt: Receipt, sent: Path, records: Sequence[RawRecord]) -> None:
        """The job is the one that was asked for, where that was kept."""
        try:
            body = _content(sent)
        except _Unreadable as error:
            raise _Broken("unreadable", str(error)) from None
        found = None if body is None else difference(body, receipt.request_hash, body_of(records[0].value) or {})
        if found is not None:
            raise _Broken("not_as_sent", found)

    def _check_seen(
        self, job_id: str, chain: EventChain, interim: Sequence[tuple[Mapping[str, Any], Mapping[str, str]]]
    ) -> None:
        """All that was ever said of the job under a trusted key, and kept, is still so."""
        path = self.folder / f"{job_id}{SEEN}"
        try:
            kept = _kept(path)
        except _Unreadable as error:
            self._violate("unreadable", path, job_id, f"{error}: nothing is held against it; move it away")
            kept = None
        before = self._kept_lines(kept or (), path, job_id)
        said = {found: shown for body, shown in (*interim, *before) if (found := interim_of(body, job_id)) is not None}
        if kept is not None:
            write_whole(path, json.dumps(list(map(dict, said.values())), indent=1).encode())
        for count, tree in said:
            if count > chain.count:
                raise _Broken(
                    "rewritten", f"it had {count} records when it was sealed in between, and has {chain.count}"
                )
            if count < 1 or chain.tree(count) != tree:
                raise _Broken("rewritten", f"its first {count} records are not those that were sealed in between")

    def _is_sealed(self, record: RawRecord, chain: EventChain) -> bool:
        claim = read_claim(0, record.value, keyring(self.keys, SEAL))
        if claim is None:
            return False
        if not 0 < claim.event_count <= chain.count or chain.root(claim.event_count) != claim.root:
            raise _Broken("rewritten", f"its first {claim.event_count} records are not those that were sealed")
        return True

    def _check_logged(self, job_id: str, seals: Sequence[RawRecord]) -> None:
        try:
            proof = self._ask(lambda: self.client.inclusion(job_id))
        except Conflict as error:
            raise _Broken("rewritten", f"its stream does not hold: {error.message}") from None
        if not any(self._is_logged(record.value, proof, self.now) for record in seals):
            raise _Broken("rewritten", "the log of seals has another seal of it, or none")


def _content(path: Path) -> bytes | None:
    """Of a file; None where there is none.

    Raises:
        _Unreadable: it is none, is not for us, or is too large.
    """
    try:
        if not path.is_file() and path.exists():
            raise _Unreadable(f"{path.name} is no file")
        with path.open("rb") as file:
            found = file.read(_LONGEST_FILE + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _Unreadable(f"{path.name}: {error.strerror}") from None
    if len(found) > _LONGEST_FILE:
        raise _Unreadable(f"{path.name} is larger than {_LONGEST_FILE // 1024 // 1024} MiB")
    return found


def _kept(path: Path) -> list[Mapping[str, str]]:
    """What was seen of a job before; raises _Unreadable."""
    content = _content(path)
    try:
        found: object = [] if content is None else json.loads(content)
    except (ValueError, RecursionError):
        raise _Unreadable(f"{path.name} is no JSON") from None
    lines = _shown(found)
    if not isinstance(found, list) or len(lines) < len(cast("list[object]", found)):
        raise _Unreadable(f"{path.name} is no list of lines with their proofs")
    return lines


def _shown(answer: object) -> list[Mapping[str, str]]:
    """Of what is said to be lines with their proofs, those that are."""
    entries = cast("list[object]", answer) if isinstance(answer, list | tuple) else []
    found = (cast("Mapping[str, Any]", one) for one in entries if isinstance(one, dict))
    return [one for one in found if isinstance(one.get("line"), str) and isinstance(one.get("proof"), str)]


def _bytes_of(shown: Mapping[str, str]) -> bytes:
    return shown["line"].encode(errors="surrogatepass")


def _seals(records: Sequence[RawRecord]) -> Iterator[RawRecord]:
    return (record for record in records if event_type(record.header("ce_type")) == b"job_sealed")
