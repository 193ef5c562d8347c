"""Was a job amended since its bundle was exported? A kept bundle against a newer one, or lines of the log of seals."""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aetheris.cli.console import CommandError, Exit
from aetheris.cli.inputs import read_bytes
from aetheris.cli.seal_tiles import read_seal_log, sealed_line
from aetheris.proofs import RawRecord, bundle
from aetheris.proofs.amendments import line_hash
from aetheris.proofs.claims import log_entry
from aetheris.proofs.evidence import BadEvidence, LogCheck, violations_at_first
from aetheris.proofs.later_seals import LaterSeals, ShownLine, Wrong, late_facts, later_seals
from aetheris.proofs.notes import BadNote, open_checkpoint, parse_inclusion
from aetheris.proofs.records import body_of, event_type
from aetheris.proofs.redacted_evidence import RedactedJob
from aetheris.proofs.sealed import covers
from aetheris.proofs.sealed_leaves import BadRecordProof
from aetheris.proofs.tiles import BadTile, entries_of
from aetheris.proofs.witnesses import open_witnessed

_LONG_AGO = datetime.min.replace(tzinfo=UTC)
"""A now at which no key has retired yet: what was exported then, it signed in its time."""
_SEALED = b"job_sealed"


@dataclass(frozen=True)
class ShownLines:
    """What somebody shows of the log of seals, and what is wrong with that.

    `facts`: those that came to light behind the kept seal, `shows`: what they break; None where only lines are shown,
    which tell of neither.
    """

    source: str
    lines: Sequence[ShownLine]
    wrong: Sequence[Wrong] = ()
    facts: Sequence[dict[str, Any]] | None = None
    shows: Sequence[Mapping[str, Any]] | None = None


@dataclass(frozen=True)
class PublishedEntries:
    """The entries of a published log, which give its signed checkpoint's root: entry → the leaf that has it first."""

    leaves: Mapping[bytes, int]
    size: int


@dataclass(frozen=True)
class KeptBundle:
    """A bundle that was exported before: its job, its seal's line, and what is wrong with it."""

    job_id: str
    line: bytes
    by: LogCheck
    """Whose seals count, and whose word that they are in the log."""
    wrong: Sequence[Wrong] = ()

    @classmethod
    def read(cls, path: Path, by: LogCheck) -> "KeptBundle":
        """Of a file, whole or redacted; its keys may have retired since.

        Raises:
            CommandError: it can't be read, or nobody who counts has signed it.
        """
        content = read_bytes(path)
        try:
            report = bundle.judge(content, by.keys, None, _LONG_AGO, by.policy, whole=False)
            job = bundle.shown_job(content, by.keys, _LONG_AGO)
            _, line = sealed_line(job)
        except BadEvidence as error:
            raise CommandError(Exit.FAILED, error.rule, f"{path}: {error.message}", file=str(path)) from None
        except BadNote as error:
            raise CommandError(Exit.FAILED, error.rule, f"{path}: {error.message}", file=str(path)) from None
        return cls(job.job_id, line, by, _of("the kept bundle", report))

    @property
    def covered(self) -> int:
        """How many records its seal is over."""
        return _covered(self.line)

    def against(self, shown: ShownLines, log: PublishedEntries | None) -> dict[str, Any]:
        """The report: each amendment, and whatever of what was shown does not hold.

        Raises:
            CommandError: its seal is none by the keys that count.
        """
        lines = [_placed(one, log) for one in shown.lines]
        try:
            found = later_seals(self.line, lines, self.by.keys)
        except BadRecordProof as error:
            raise CommandError(Exit.FAILED, error.rule, f"the kept bundle: {error.message}") from None
        wrong = [*self.wrong, *shown.wrong, *found.wrong]
        if not found.amendments and self.line not in {one.line for one in lines}:
            wrong.append(("seal_not_logged", "what is shown lacks the kept bundle's seal: it tells nothing of the job"))
        if log is not None and log_entry(self.line) not in log.leaves:
            wrong.append(("not_included", "the kept bundle's seal is not in the published log"))
        return {
            "job_id": self.job_id,
            "source": shown.source,
            "event_count": self.covered,
            "seal": line_hash(self.line),
            "ok": not found.amendments and not wrong,
            "amendments": list(_told(found, shown.facts, self.covered)),
            "shows": None if shown.shows is None else list(shown.shows),
            "unsigned": found.unsigned,
            "published": None if log is None else _coverage(lines, log),
            "violations": [{"rule": rule, "message": message} for rule, message in wrong],
        }


def newer_bundle(content: bytes, kept: KeptBundle, source: str) -> ShownLines:
    """The seals in another bundle of the job, which must hold by itself, but for what its amendments show.

    Raises:
        CommandError: it can't be read, or is of another job.
    """
    by = kept.by
    try:
        report = bundle.judge(content, by.keys, None, by.now, by.policy, whole=False)
        job = bundle.shown_job(content, by.keys, by.now)
        leaf, line = sealed_line(job)
    except (BadEvidence, BadNote) as error:
        raise CommandError(Exit.FAILED, error.rule, f"the other bundle: {error.message}") from None
    if job.job_id != kept.job_id:
        rule = f"the bundles are of two jobs, {kept.job_id} and {job.job_id}"
        raise CommandError(Exit.BAD_INPUT, "other_job", rule, field="--newer")
    seals = [one.value for one in job.records if isinstance(one, RawRecord) and _is_seal(one)]
    wrong = list(_of("the other bundle", report))
    if kept.line not in seals:
        covered = f"the other bundle covers {_covered(line)} records, the kept one {kept.covered}"
        wrong.append(("not_newer" if _covered(line) < kept.covered else "sealed_otherwise", covered))
    lines = [ShownLine(one, leaf if one == line else None) for one in seals]
    if isinstance(job, RedactedJob):
        return ShownLines(source, lines, wrong)
    shows: Sequence[Mapping[str, Any]] = (report["amended"] or {}).get("shows", ())
    return ShownLines(source, lines, wrong, late_facts(job.records, by.keys, kept.covered), shows)


def lines_file(path: Path, kept: KeptBundle) -> ShownLines:
    """Lines of the log of seals in a file: {"lines": [{"line", "proof"}]}, or the lines themselves, one a line.

    Raises:
        CommandError: it can't be read.
    """
    content = read_bytes(path)
    if not content.lstrip().startswith(b'{"lines"'):
        return ShownLines("lines", [ShownLine(line, None) for line in content.split(b"\n") if line])
    try:
        given = [(one["line"].encode(errors="surrogatepass"), one.get("proof")) for one in json.loads(content)["lines"]]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        rule = f'{path}: neither lines, one a line, nor {{"lines": [{{"line", "proof"}}]}}'
        raise CommandError(Exit.BAD_INPUT, "bad_lines", rule, file=str(path)) from None
    lines, wrong = list[ShownLine](), list[Wrong]()
    for line, proof in given:
        refusals = list(kept.by.refusals(line, proof)) if isinstance(proof, str) else []
        wrong += refusals
        is_proved = isinstance(proof, str) and not refusals
        lines.append(ShownLine(line, parse_inclusion(proof).index if is_proved else None))
    return ShownLines("lines", lines, wrong)


def lines_of_log(bootstrap: str) -> ShownLines:
    """All lines as they lie in Kafka.

    Raises:
        CommandError: no broker answers.
    """
    return ShownLines("log", asyncio.run(_everything(bootstrap)))


async def _everything(bootstrap: str) -> list[ShownLine]:
    from aetheris.cli.fromlog import SEALS, everything  # noqa: PLC0415
    from aetheris.cli.reachable_log import reachable  # noqa: PLC0415  Kafka's client, which files don't need

    async with reachable(bootstrap, within_s=None) as log:
        return [ShownLine(record.value, record.offset) async for record in everything(log, *SEALS)]


def published_entries(where: str, by: LogCheck) -> PublishedEntries:
    """The entries of a published log; they are what its signed checkpoint says.

    Raises:
        CommandError: they can't be read, or contradict it.
    """
    log = read_seal_log(where)
    try:
        note = log.checkpoint()
        if by.policy is None:
            checkpoint = open_checkpoint(note, by.keys, by.now)
        else:
            checkpoint = open_witnessed(note, by.policy).checkpoint
        entries = entries_of(log.read, checkpoint.size, checkpoint.root)
    except BadNote as error:
        raise CommandError(Exit.FAILED, error.rule, f"{where}: {error.message}") from None
    except BadTile as error:
        raise CommandError(Exit.FAILED, error.code, f"{where}: {error}") from None
    return PublishedEntries({entry: at for at, entry in reversed(list(enumerate(entries)))}, checkpoint.size)


def _placed(one: ShownLine, log: PublishedEntries | None) -> ShownLine:
    """Where a published log is given, its word alone is where a line lies."""
    return one if log is None else ShownLine(one.line, log.leaves.get(log_entry(one.line)))


def _coverage(lines: Sequence[ShownLine], log: PublishedEntries) -> dict[str, int]:
    """How many leaves the log has, and of how many nobody has shown the line: these may be anything."""
    shown = {one.leaf for one in lines if one.leaf is not None}
    return {"leaves": log.size, "not_shown": len(log.leaves) - len(shown)}


def _told(found: LaterSeals, facts: Sequence[dict[str, Any]] | None, covered: int) -> Iterator[dict[str, Any]]:
    for one in found.amendments:
        added = None
        if facts is not None:
            added = [fact for fact in facts if covered <= fact["index"] < one.event_count]
        yield {**one.to_json(), "facts": added}
        covered = max(covered, one.event_count)


def _of(whose: str, report: Mapping[str, Any]) -> Sequence[Wrong]:
    """What is wrong with a bundle as it was sealed at first."""
    return [(str(one["rule"]), f"{whose}: {one['message']}") for one in violations_at_first(report)]


def _is_seal(one: RawRecord) -> bool:
    return event_type(one.header("ce_type")) == _SEALED


def _covered(line: bytes) -> int:
    return covers(body_of(line) or {})
