"""Mutants called beside what they are of: where all say and do the same, a run is the same, and need not be repeated.

Only functions of the fold, which have no surroundings: what they change lies in their arguments, which are copied.
"""

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from types import CodeType, FunctionType
from typing import Any

from tests.mutants.conditions import Mutant, code_of, function_of

_PLAIN = (
    "protocol.fold.state",
    "protocol.fold.start",
    "protocol.fold.revisions",
    "protocol.fold.job_waits",
    "protocol.fold.rules",
    "protocol.planning.gate",
    "ledger.core.adjudication._hurdle",
    "ledger.core.adjudication._approved_otherwise",
    "ledger.core.adjudication._is_known",
    "ledger.core.adjudication._rule_to_follow",
    "ledger.core.adjudication.is_closed",
    "ledger.core.adjudication.stopped",
)
_GENERATOR = 0x20


def is_plain(mutant: Mutant) -> bool:
    """Whether it can be called beside its original."""
    function = function_of(mutant.module, mutant.function)
    return mutant.where.startswith(_PLAIN) and not function.__code__.co_flags & _GENERATOR


@contextmanager
def beside(mutants: Iterable[Mutant]) -> Generator[set[Mutant]]:
    """Those that have said or done something else since it was last emptied."""
    different: set[Mutant] = set()
    by_function: dict[tuple[str, str], list[Mutant]] = {}
    for mutant in mutants:
        by_function.setdefault((mutant.module, mutant.function), []).append(mutant)
    busy: list[None] = []
    changed = [_Changed(function_of(*name), of, different, busy) for name, of in by_function.items()]
    try:
        yield different
    finally:
        for one in changed:
            one.restore()


class _Changed:
    """A function that calls its mutants too."""

    def __init__(self, function: FunctionType, mutants: list[Mutant], different: set[Mutant], busy: list[None]) -> None:
        self._function, self._kept = function, (function.__code__, function.__defaults__, function.__kwdefaults__)
        self._original = self._copy(function.__code__)
        self._mutants = [(mutant, self._copy(code_of(mutant))) for mutant in mutants]
        self._different, self._busy = different, busy
        function.__defaults__ = function.__kwdefaults__ = None
        name = f"_beside_{function.__qualname__.replace('.', '_')}"
        function.__globals__[name] = self._call
        function.__code__ = _calling(name)

    def restore(self) -> None:
        self._function.__code__, self._function.__defaults__, self._function.__kwdefaults__ = self._kept

    def _copy(self, code: CodeType) -> FunctionType:
        of = self._function
        made = FunctionType(code, of.__globals__, of.__name__, of.__defaults__, of.__closure__)
        made.__kwdefaults__ = of.__kwdefaults__
        return made

    def _call(self, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if self._busy:
            return self._original(*args, **named)
        before = _copied((args, named), {})
        said = self._original(*args, **named)
        self._busy.append(None)
        try:
            for mutant, changed in self._mutants:
                if mutant not in self._different and not _is_like(changed, _copied(before, {}), said, (args, named)):
                    self._different.add(mutant)
        finally:
            self._busy.clear()
        return said


def _is_like(mutant: FunctionType, given: Any, said: Any, after: Any) -> bool:
    try:
        return mutant(*given[0], **given[1]) == said and given == after
    except Exception:  # noqa: BLE001  whatever it is, the original said something
        return False


def _calling(name: str) -> CodeType:
    scope: dict[str, Any] = {}
    exec(f"def call(*args, **named): return {name}(args, named)", scope)  # noqa: S102  a name of ours
    return scope["call"].__code__


def _copied(value: Any, known: dict[int, Any]) -> Any:
    """What can change, again; all else, messages above all, as it is."""
    if id(value) in known:
        return known[id(value)]
    made = value
    if type(value) is tuple:
        made = tuple([_copied(one, known) for one in value])
    elif type(value) is list:
        made = [_copied(one, known) for one in value]
    elif type(value) is dict:
        made = {name: _copied(one, known) for name, one in value.items()}
    elif type(value) is set:
        made = set(value)
    elif is_dataclass(value) and type(value).__hash__ is None:  # who is frozen has a hash
        made = object.__new__(type(value))
        for one in fields(value):
            setattr(made, one.name, _copied(getattr(value, one.name), known))
    known[id(value)] = made
    return made
