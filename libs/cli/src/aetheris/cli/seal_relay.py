"""What carries checkpoints of a log of seals to witnesses and time stamp authorities, and back what they sign.

It holds no key.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import httpx

from aetheris.proofs.notes import MAX_SIGNATURES, BadNote, Checkpoint, parse_consistency, signatures_of
from aetheris.proofs.timestamps import BadTimestamp, TrustedAuthorities, stamp_line, stamps_of
from aetheris.proofs.witnesses import LogPolicy, Witness, Witnessed, open_logged, open_witnessed, seen_by
from aetheris.runtime.base.whole_file import write_whole
from aetheris.verifier.witnessed import file_name

WITHIN_S = 10.0
MAX_BODY = 64 * 1024
_SIZE = re.compile(r"(0|[1-9][0-9]{0,18})\n")
_TRIES = 5
_OK, _CONFLICT = 200, 409


class SealLogSource(Protocol):
    """Who answers for the log: its checkpoint now, and what it has grown by, as `add-checkpoint` takes it."""

    def checkpoint(self) -> str: ...

    def consistency(self, old: int) -> str: ...


@dataclass(frozen=True, slots=True)
class WitnessAnswer:
    """A status, or why there is none; `text` is the witness's word, not judged."""

    status: int
    text: str


Post = Callable[[str, bytes], WitnessAnswer]


class Stamping(Protocol):
    """A time stamp authority."""

    @property
    def name(self) -> str:
        """As its lines have it."""
        ...

    @property
    def trusted(self) -> TrustedAuthorities:
        """By whom what it answers is judged."""
        ...

    def stamp(self, text: bytes) -> bytes:
        """Its answer over a text, judged; raises BadTimestamp."""
        ...


@dataclass(slots=True)
class SealRelay:
    """Remembers what each witness has seen; a folder has what a quorum has seen, a file of each size."""

    policy: LogPolicy
    folder: Path
    post: Post
    authorities: Sequence[Stamping] = ()
    seen: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def witnesses(self) -> Sequence[Witness]:
        """Those of the policy that say where they are."""
        return [one for one in self.policy.witnesses.values() if one.url]

    def carry(self, source: SealLogSource) -> tuple[Witnessed | None, Mapping[str, str]]:
        """Ask all witnesses once for the log as it is; the checkpoint if it has its quorum, and why others are missing.

        Authorities are asked for what has its quorum, and is kept by then, whatever they answer.

        Raises:
            BadNote: the log's own checkpoint is not what the policy asks for.
        """
        found, missing = self._witnessed(source)
        if found is None:
            return None, missing
        found, unstamped = self._stamped(found)
        return found, {**missing, **unstamped}

    def _witnessed(self, source: SealLogSource) -> tuple[Witnessed | None, Mapping[str, str]]:
        checkpoint = open_logged(source.checkpoint(), self.policy.logs)
        known = self._kept(checkpoint)
        if known is not None:
            return known, {}
        if not self.witnesses:
            return self._taken(checkpoint, {})
        known_sizes = {one.name: self.seen.get(one.name, 0) for one in self.witnesses}
        wanted = {name: size if size <= checkpoint.size else 0 for name, size in known_sizes.items()}
        checkpoint, bodies = self._bodies(source, set(wanted.values()))
        answers = self._ask({name: bodies[old] for name, old in wanted.items()})
        said = {name: size for name, one in answers.items() if (size := _size(one)) is not None}
        others = {name: size for name, size in said.items() if size <= checkpoint.size}
        self.seen |= others
        if others:
            again, bodies = self._bodies(source, set(others.values()))
            if again.note == checkpoint.note:  # else in the next round
                answers |= self._ask({name: bodies[size] for name, size in others.items()})
        return self._taken(checkpoint, answers)

    def _taken(
        self, checkpoint: Checkpoint, answers: Mapping[str, WitnessAnswer]
    ) -> tuple[Witnessed | None, Mapping[str, str]]:
        note, missing = checkpoint.note, dict[str, str]()
        for one in self.witnesses:
            answer = answers[one.name]
            line = cosignature(checkpoint.note, one, answer.text) if answer.status == _OK else None
            if line is None:
                missing[one.name] = _why(answer, checkpoint.size)
                continue
            note += line
            self.seen[one.name] = checkpoint.size
        try:
            found = open_witnessed(note, self.policy)
        except BadNote:
            return None, missing
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self.folder / file_name(checkpoint.size), note.encode())
        return found, missing

    def _stamped(self, found: Witnessed) -> tuple[Witnessed, Mapping[str, str]]:
        """The same with the time stamps that it lacks, as far as they are given; and why others are not."""
        _, text, _ = signatures_of(found.checkpoint.note)
        note, missing = found.checkpoint.note, dict[str, str]()
        for authority in self.authorities:
            if _is_stamped(note, text, authority):
                continue
            try:
                note += stamp_line(authority.name, authority.stamp(text))
            except BadTimestamp as error:
                missing[authority.name] = str(error)
        if note == found.checkpoint.note:
            return found, missing
        write_whole(self.folder / file_name(found.checkpoint.size), note.encode())
        return open_witnessed(note, self.policy), missing

    def _kept(self, checkpoint: Checkpoint) -> Witnessed | None:
        """What the folder has of the same tree, by the same key."""
        try:
            found = open_witnessed((self.folder / file_name(checkpoint.size)).read_text(), self.policy)
        except (OSError, UnicodeDecodeError, BadNote):
            return None
        return found if found.checkpoint.note.startswith(checkpoint.note) else None

    def _bodies(self, source: SealLogSource, olds: set[int]) -> tuple[Checkpoint, dict[int, bytes]]:
        """What is posted to who has seen so much: of one checkpoint for all, where the log lets us."""
        for _ in range(_TRIES):
            bodies = {old: source.consistency(old).encode() for old in olds}
            notes = {parse_consistency(body.decode()).checkpoint for body in bodies.values()}
            if len(notes) == 1:
                return open_logged(notes.pop(), self.policy.logs), bodies
        raise BadNote("log_too_fast", "the log of seals grew with each question")

    def _ask(self, bodies: Mapping[str, bytes]) -> dict[str, WitnessAnswer]:
        urls = {one.name: f"{one.url.rstrip('/')}/add-checkpoint" for one in self.witnesses}
        with ThreadPoolExecutor(max_workers=max(1, len(bodies))) as pool:
            asked = {name: pool.submit(self.post, urls[name], body) for name, body in bodies.items()}
        return {name: one.result() for name, one in asked.items()}


def cosignature(note: str, witness: Witness, text: str) -> str | None:
    """The line of an answer that this witness has signed under this checkpoint; None where none is."""
    for line in text.splitlines(keepends=True)[:MAX_SIGNATURES]:
        try:
            if seen_by(note + line, [witness.key]):
                return line
        except BadNote:
            continue
    return None


def _is_stamped(note: str, text: bytes, authority: Stamping) -> bool:
    for name, stamp in stamps_of(note):
        with suppress(BadTimestamp):
            if name == authority.name and authority.trusted.time_of(stamp, text):
                return True
    return False


class NoAnswer(Exception):
    """Nobody answers, or not as it must be; the message says why."""


def exchanged(url: str, body: bytes, headers: Mapping[str, str], within_s: float = WITHIN_S) -> tuple[int, bytes]:
    """Status and content that somebody answers to a POST; he has so many bytes and seconds.

    Raises:
        NoAnswer.
    """
    deadline, content = time.monotonic() + within_s, bytearray()
    try:
        with (
            httpx.Client(timeout=within_s) as client,
            client.stream("POST", url, content=body, headers=dict(headers)) as answer,
        ):
            for part in answer.iter_bytes():
                content += part
                if len(content) > MAX_BODY or time.monotonic() > deadline:
                    raise NoAnswer("it says too much, or too slowly")
            return answer.status_code, bytes(content)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise NoAnswer(f"no answer: {type(error).__name__}") from None


def post(url: str, body: bytes, within_s: float = WITHIN_S) -> WitnessAnswer:
    """Ask a witness; it has so many seconds to answer."""
    try:
        status, content = exchanged(url, body, {}, within_s)
    except NoAnswer as error:
        return WitnessAnswer(0, str(error))
    return WitnessAnswer(status, content.decode(errors="replace"))


def _size(answer: WitnessAnswer) -> int | None:
    return int(answer.text) if answer.status == _CONFLICT and _SIZE.fullmatch(answer.text) else None


def _why(answer: WitnessAnswer, size: int) -> str:
    seen = _size(answer)
    if seen is not None and seen > size:
        return f"it has seen {seen} leaves, and the log has {size}: the log was shown to it otherwise, or has lost some"
    if answer.status == 0:
        return answer.text
    return "its answer has no cosignature of its key" if answer.status == _OK else f"it answers {answer.status}"
