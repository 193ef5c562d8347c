"""Conditions in CEL: `args.amount > 100` (docs/policy.md, docs/replay.md)."""

import re
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import cel

MAX_ASKED = 500
"""Characters of a condition that comes with a question."""
MAX_LOOPS = 2
"""Loops of such a condition: each one inside another multiplies what it costs."""
_LOOP = re.compile(r"\.\s*(?:all|exists|exists_one|filter|map)\s*\(")
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

    def __init__(self, field: str, text: str, names: frozenset[str]) -> None:
        """What `field` says, about the facts of those names.

        Raises:
            BadCondition: it is no CEL, or names a fact that is none.
        """
        self._field = field
        self._text = text
        unknown = set(self._program.variables()) - names - set(_BOUND.findall(text))
        if unknown:
            known = sorted(names)
            there_are = f"there is {known[0]}" if len(known) == 1 else f"there are {', '.join(known)}"
            raise BadCondition(field, f"there is no {', '.join(sorted(unknown))}; {there_are}")

    def holds(self, facts: Mapping[str, Any]) -> bool:
        """Whether it is true of these facts.

        Raises:
            Exception: it can't be said of them, such as for an argument that is missing.
        """
        answer = self._program.execute(dict(facts))
        if not isinstance(answer, bool):
            raise TypeError("a condition is true or false")
        return answer

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
    if len(text) > MAX_ASKED:
        raise BadCondition(field, f"at most {MAX_ASKED} characters")
    if len(_LOOP.findall(text)) > MAX_LOOPS:
        raise BadCondition(field, f"at most {MAX_LOOPS} of all, exists, exists_one, filter and map")
    return Condition(field, text, frozenset({"args"}))
