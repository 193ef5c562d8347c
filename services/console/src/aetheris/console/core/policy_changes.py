"""Two policies side by side, line by line; pure."""

from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import NamedTuple

MOST_LINES = 3_000
"""Of each: what is longer is not compared, for that takes the square of it."""
_AROUND = 3
"""Lines that stayed which are shown around a change."""


class ChangedLine(NamedTuple):
    """A line of one of them; `kind`: added, removed, same, or skipped where lines that stayed are left out."""

    kind: str
    text: str


def as_posted(text: str) -> str:
    """A text as it was before a browser made its line ends those of a form."""
    return text.replace("\r\n", "\n")


def changed_lines(was: str, now: str) -> list[ChangedLine] | None:
    """What differs, with what lies around it, in order; None where they are too long to be compared."""
    before, after = was.splitlines(), now.splitlines()
    if max(len(before), len(after)) > MOST_LINES:
        return None
    found: list[ChangedLine] = []
    reached = 0
    for group in SequenceMatcher(None, before, after).get_grouped_opcodes(_AROUND):
        if group[0][1] > reached:
            found.append(ChangedLine("skipped", f"{group[0][1] - reached} lines that stay"))
        for kind, begin, end, now_begin, now_end in group:
            found += _lines(kind, before[begin:end], after[now_begin:now_end])
        reached = group[-1][2]
    if found and reached < len(before):
        found.append(ChangedLine("skipped", f"{len(before) - reached} lines that stay"))
    return found


def _lines(kind: str, before: list[str], after: list[str]) -> Iterator[ChangedLine]:
    if kind == "equal":
        yield from (ChangedLine("same", line) for line in before)
        return
    yield from (ChangedLine("removed", line) for line in before)
    yield from (ChangedLine("added", line) for line in after)
