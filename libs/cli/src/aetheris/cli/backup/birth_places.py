"""Whether the jobs of a backup were created where their index says: a mirror may have laid them elsewhere."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping

from pydantic import ValidationError

from aetheris.cli.console import CommandError, Exit
from aetheris.protocol.base.records import Record
from aetheris.protocol.messages.commands import JobIndexEntry

KEPT = 10_000
"""Of each partition, the jobs of which the index spoke last."""
LOOKED_AT = 20
"""The youngest of them: what shifts a log shifts all that follows."""
_BIRTH = b"io.aetheris.job_created.v1"


class BirthPlaces:
    """Takes jobs.index first, then jobs.events; a job that is not there any more says nothing."""

    def __init__(self, cut: Mapping[int, int] | None = None) -> None:
        """`cut`: partitions of which `known` is asked, and where jobs.events begins there."""
        self._begins = cut or {}
        self._born: dict[int, set[bytes]] = {number: set() for number in self._begins}
        self._said: dict[int, OrderedDict[bytes, int]] = {}
        self._right: set[bytes] = set()
        self._elsewhere: set[bytes] = set()

    def index_says(self, record: Record) -> None:
        """The next line of jobs.index."""
        line = _line(record)
        if line is None:
            return
        said = self._said.setdefault(_lies_in(line, record), OrderedDict())
        said[line.job_id.encode()] = line.birth
        said.move_to_end(line.job_id.encode())
        if len(said) > KEPT:
            said.popitem(last=False)

    def lies(self, record: Record) -> None:
        """The next record of jobs.events."""
        key = record.key or b""
        if record.header("ce_type") != _BIRTH:
            return
        if record.partition in self._born:
            self._born[record.partition].add(key)
        birth = self._said.get(record.partition, {}).get(key)
        if birth is not None:
            (self._right if record.offset == birth else self._elsewhere).add(key)

    def known(self, lines: Iterable[Record]) -> Iterator[Record]:
        """Lines of jobs.index, without what they say of jobs that are not in the partition that was cut."""
        for line in lines:
            said = _line(line)
            yield line.replaced(value=b"") if said is not None and self._is_gone(said, line) else line

    def _is_gone(self, said: JobIndexEntry, line: Record) -> bool:
        where = _lies_in(said, line)
        begin = self._begins.get(where)
        return begin is not None and said.birth >= begin and said.job_id.encode() not in self._born[where]

    def check(self) -> None:
        """All is read.

        Raises:
            CommandError: most of a partition's youngest jobs lie elsewhere.
        """
        for partition, said in self._said.items():
            there = [job for job in sorted(said, key=lambda job: said[job]) if job in self._right | self._elsewhere]
            youngest = there[-LOOKED_AT:]
            moved = [job for job in youngest if job not in self._right]
            if 2 * len(moved) > len(youngest):
                message = (
                    f"jobs.events[{partition}]: {len(moved)} of the {len(youngest)} youngest jobs lie at other offsets "
                    "than their index says. It was copied by something that does not keep offsets, as MirrorMaker may "
                    "not: all that names an offset leads astray, and nothing is restored of it"
                )
                raise CommandError(Exit.FAILED, "other_offsets", message)


def _lies_in(line: JobIndexEntry, record: Record) -> int:
    """The partition of jobs.events: that of its line, but where the log has grown."""
    return record.partition if line.partition is None else line.partition


def _line(record: Record) -> JobIndexEntry | None:
    try:
        return JobIndexEntry.model_validate_json(record.value)
    except ValidationError:
        return None
