"""Conditions in CEL: `args.amount > 100` (docs/policy.md, docs/replay.md).

What they may cost is bounded, for arguments are a client's: CEL has no budget of its own, and a loop inside another, or
one that makes a list, took minutes over a thousand members.
"""

import re
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import cel

MAX_RULE = 2_000
"""Characters of a condition that stands in a rule."""
MAX_ASKED = 500
"""Of one that comes with a question."""
MAX_LOOPS = 2
"""Loops of a condition that comes with a question."""
MAX_LOOPED = 1_000
"""Members, of lists and objects together, that the arguments of a condition with a loop may have."""
MAX_LOOPED_ASKED = 200
"""The same of a question, which is put to every call of a job."""

_LOOP = re.compile(r"\b(?:all|exists|exists_one|filter|map)\b(?!\s*['\"])")
"""What may be one; a string that says so and nothing else is none."""
_LISTS = re.compile(r"\bmap\s*(?:\(|//)")
_STRING = re.compile(r"'[^']*'|\"[^\"]*\"")
_OBSCURE = re.compile(r"\\|//|\'\'\'|\"\"\"")
"""Where these are, what is a string can't be told by its quotes."""
_BOUND = re.compile(r"\.(?:all|exists|exists_one|filter|map)\(\s*([A-Za-z_]\w*)\s*,")
"""The names that a condition binds itself, as x in `args.to.exists(x, x == 'ann')`."""


class BadCondition(ValueError):
    """What is no condition; `field` says of what."""

    code = "bad_condition"

    def __init__(self, field: str, rule: str) -> None:
        super().__init__(f"{field}: {rule}")
        self.field = field
        self.rule = rule


class Condition:
    """A CEL expression over named facts that is true or false."""

    def __init__(
        self, field: str, text: str, names: frozenset[str], most: int = MAX_RULE, most_looped: int = MAX_LOOPED
    ) -> None:
        """What `field` says, about the facts of those names.

        Raises:
            BadCondition: it is no CEL, names a fact that is none, or may cost too much.
        """
        if len(text) > most:
            raise BadCondition(field, f"at most {most} characters")
        self._field = field
        self._text = text
        self.loops = len(_LOOP.findall(text))
        self._most_looped = most_looped
        self._check_loops()
        unknown = set(self._program.variables()) - names - set(_BOUND.findall(text))
        if unknown:
            known = sorted(names)
            there_are = f"there is {known[0]}" if len(known) == 1 else f"there are {', '.join(known)}"
            raise BadCondition(field, f"there is no {', '.join(sorted(unknown))}; {there_are}")

    def holds(self, facts: Mapping[str, Any]) -> bool:
        """Whether it is true of these facts.

        Raises:
            Exception: it can't be said of them, such as for an argument that is missing, or for too many of them.
        """
        if self.loops and _members(facts, self._most_looped) < 0:
            raise ValueError("more members than a loop may go through")
        answer = self._program.execute(dict(facts))
        if not isinstance(answer, bool):
            raise TypeError("a condition is true or false")
        return answer

    def _check_loops(self) -> None:
        if _LISTS.search(self._text):
            raise BadCondition(self._field, "map makes lists, which a condition has no use for")
        if self.loops > 1:
            if _OBSCURE.search(self._text):
                raise BadCondition(self._field, "no \\, no // and no tripled quotes beside two loops")
            if _nested(_STRING.sub("''", self._text)):
                raise BadCondition(self._field, "no all, exists, exists_one or filter inside another")

    @cached_property
    def _program(self) -> "cel.Program":
        import cel  # noqa: PLC0415  it brings a command line along: a fifth of the time in which the ledger starts

        try:
            return cel.compile(self._text)
        except ValueError as error:
            raise BadCondition(self._field, " ".join(str(error).split())) from None


def asked_condition(field: str, text: str) -> Condition:
    """What somebody asks about arguments, `args`: short, and with few loops, for it is judged again and again.

    Raises:
        BadCondition.
    """
    condition = Condition(field, text, frozenset({"args"}), MAX_ASKED, MAX_LOOPED_ASKED)
    if condition.loops > MAX_LOOPS:
        raise BadCondition(field, f"at most {MAX_LOOPS} of all, exists, exists_one and filter")
    return condition


def _nested(text: str) -> bool:
    """Whether a loop stands within the parentheses of another."""
    within: list[bool] = []
    for found in re.finditer(r"(\b(?:all|exists|exists_one|filter)\s*)?\(|\)", text):
        if found.group() == ")":
            if within:
                within.pop()
        else:
            loops = found.group(1) is not None
            if loops and any(within):
                return True
            within.append(loops)
    return False


def _members(part: Any, left: int) -> int:
    """How many more members than those of `part` there might be; less than 0 where it has too many."""
    if isinstance(part, Mapping):
        inner: list[Any] = list(cast("Mapping[str, Any]", part).values())
    elif isinstance(part, list | tuple):
        inner = list(cast("list[Any]", part))
    else:
        return left
    left -= len(inner)
    for one in inner:
        if left < 0:
            break
        left = _members(one, left)
    return left
