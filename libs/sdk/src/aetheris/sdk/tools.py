"""Declaring tools: a typed function, what is known of its effect, how the external system can be asked (docs/tools.md).

@tool(effect_class="probeable", irreversible=True, settles_within_s=60)
async def refund(ctx: ToolContext, order_id: str, amount: int) -> Result: ...

@refund.probe
async def refunded(external_key: str) -> Found | NotFound | Unknown: ...
"""

import inspect
import re
import sys
from collections.abc import Callable, Sequence
from functools import update_wrapper
from types import CodeType
from typing import Any, Generic, Literal, ParamSpec, TypeVar, cast, get_args, get_type_hints
from weakref import ref

from aetheris.protocol.plan.graph import LONGEST_DUPLICATE_WINDOW_S, TEN_YEARS_S, settling_s
from aetheris.protocol.planning.personal_fields import PersonalRefused, personal_fields
from aetheris.sdk.context import ProbeContext, ToolContext
from aetheris.sdk.outcomes import Partial, Result
from aetheris.sdk.results import check_returned
from aetheris.sdk.schema import DeclarationError, GivenSchema, Signature, hints_of, signature_of

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
Asking = TypeVar("Asking", bound=Callable[..., Any])

EffectClass = Literal["pure", "idempotent", "probeable", "opaque"]
OnInDoubt = Literal["park", "fail"]
EffectKind = Literal["tool", "http"]
Isolation = Literal["process"]
DuplicateScope = Literal["job", "session", "tenant"]

LONGEST_DESCRIPTION = 4_000  # characters
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class Tool(Generic[P, R_co]):
    """A declared tool; calling it calls the function itself, outside of any job."""

    def __init__(
        self,
        function: Callable[P, R_co],
        *,
        name: str,
        version: str,
        effect_class: EffectClass,
        irreversible: bool,
        timeout_s: float,
        settles_within_s: float | None,
        volatile: Sequence[str],
        on_in_doubt: OnInDoubt | None,
        duplicate_scope: DuplicateScope,
        duplicate_window_s: float,
        probe: Callable[..., Any] | None,
        schema: GivenSchema | None = None,
        kind: EffectKind = "tool",
        isolation: Isolation | None = None,
    ) -> None:
        self.function = function
        self.isolation: Isolation | None = isolation
        self.ending_s = 0.0
        """How long a call's end is awaited after its time, where it is made in another process."""
        self.kind: EffectKind = kind
        self.name = name
        self.version = version
        self.effect_class: EffectClass = effect_class
        self.irreversible = irreversible
        self.timeout_s = timeout_s
        self.settles_within_s = settling_s(effect_class, timeout_s, settles_within_s)
        self.volatile = tuple(volatile)
        self.on_in_doubt: OnInDoubt | None = on_in_doubt
        self.duplicate_scope: DuplicateScope = duplicate_scope
        self.duplicate_window_s = duplicate_window_s
        self.asks: Callable[..., Any] | None = None
        self.verifies: Callable[..., Any] | None = None
        update_wrapper(self, function)
        self._check(settles_within_s)
        self.signature: Signature | GivenSchema = schema or signature_of(function, ToolContext, self.key)
        try:
            personal_fields(self.signature.schema)
        except PersonalRefused as refused:
            raise DeclarationError(f"{self.key}: {refused}") from None
        if schema is None:
            check_returned(function, self.key)
        if irreversible and not _can_name(function, self.key):
            rule = "is irreversible, so its effect must be traceable: return Result(value, external_id), with -> Result"
            raise DeclarationError(f"{self.key}: {rule}")
        if probe is not None:
            self.probe(probe)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        return self.function(*args, **kwargs)

    @property
    def key(self) -> str:
        """name@version."""
        return f"{self.name}@{self.version}"

    @property
    def place(self) -> tuple[str, int] | None:
        """The file and line of its function."""
        return place_of(self.function)

    @property
    def pure(self) -> bool:
        """Reads only: whatever happens to a call of it, external systems are as they were."""
        return self.effect_class == "pure"

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments, defaults included."""
        return self.signature.schema

    @property
    def schema_hash(self) -> str:
        """hex SHA-256 of the schema's canonical JSON."""
        return self.signature.schema_hash

    def probe(self, asks: Asking) -> Asking:
        """Declare how the external system is asked: `asks(external_key)`, with a ProbeContext where a parameter is one.

        Raises:
            DeclarationError: the tool isn't probeable, or has a probe already.
        """
        if self.effect_class != "probeable":
            raise DeclarationError(f"{self.key}: has a probe, so declare effect_class='probeable'")
        if self.asks is not None:
            raise DeclarationError(f"{self.key}: has two probes")
        self.asks = asks
        return asks

    def verifier(self, verifies: Asking) -> Asking:
        """Declare how a recorded effect is compared with the external system: `verifies(change: StateChange)`.

        Raises:
            DeclarationError: the tool is pure, or has a verifier already.
        """
        if self.pure:
            raise DeclarationError(f"{self.key}: is pure, so there is nothing to verify")
        if self.verifies is not None:
            raise DeclarationError(f"{self.key}: has two verifiers")
        self.verifies = verifies
        return verifies

    def registry_entry(self) -> dict[str, Any]:
        """The tool as tools.registry has it.

        Raises:
            DeclarationError: probeable, but has no probe.
        """
        if self.effect_class == "probeable" and self.asks is None:
            refused = DeclarationError(f"{self.key}: is probeable, but has no probe: add @{self.name}.probe")
            refused.place = self.place
            raise refused
        return {
            "name": self.name,
            "version": self.version,
            "description": (inspect.getdoc(self.function) or "")[:LONGEST_DESCRIPTION],
            "schema": self.schema,
            "schema_hash": self.schema_hash,
            "effect_class": self.effect_class,
            "irreversible": self.irreversible,
            "timeout_s": self.timeout_s,
            "settles_within_s": self.settles_within_s,
            "volatile": list(self.volatile),
            "on_in_doubt": self.on_in_doubt,
            "duplicate_scope": self.duplicate_scope,
            "duplicate_window_s": self.duplicate_window_s,
            "probe": self.asks is not None,
            "verifier": self.verifies is not None,
        }

    def _check(self, settles_within_s: float | None) -> None:
        for field in ("name", "version"):
            if not _NAME.fullmatch(getattr(self, field)):
                raise DeclarationError(f"{self.key}: {field} must match [A-Za-z0-9_.-]{{1,64}}")
        if self.effect_class not in get_args(EffectClass):
            raise DeclarationError(f"{self.key}: effect_class must be one of {', '.join(get_args(EffectClass))}")
        if self.on_in_doubt not in (None, *get_args(OnInDoubt)):
            raise DeclarationError(f"{self.key}: on_in_doubt must be one of {', '.join(get_args(OnInDoubt))}")
        is_in_bounds = 0 < self.duplicate_window_s <= LONGEST_DUPLICATE_WINDOW_S
        if self.duplicate_scope not in get_args(DuplicateScope) or not is_in_bounds:
            raise DeclarationError(f"{self.key}: duplicate_scope is job, session or tenant, for at most 30 days")
        if self.duplicate_scope != "job" and not self.irreversible:
            raise DeclarationError(f"{self.key}: only what is irreversible has a duplicate_scope")
        if self.isolation not in (None, *get_args(Isolation)):
            raise DeclarationError(f"{self.key}: isolation must be process, or left out")
        if self.pure and self.irreversible:
            raise DeclarationError(f"{self.key}: what is pure has nothing to reverse")
        if not 0 < self.timeout_s <= TEN_YEARS_S:
            raise DeclarationError(f"{self.key}: timeout_s must be above 0, and ten years at most")
        if settles_within_s is not None and not 0 <= settles_within_s <= TEN_YEARS_S:
            raise DeclarationError(f"{self.key}: settles_within_s must not be below 0, and ten years at most")


_CHOICES = (
    "say what is known of a call whose end nobody saw: effect_class='pure' (it reads only), 'idempotent' (the external"
    " system drops a second request with ctx.external_key), 'probeable' (it can be asked by that key: add a probe), or"
    " 'opaque' (none of these; with irreversible=True where it can't be taken back, else irreversible=False)"
)


def tool(
    name: str | None = None,
    *,
    version: str = "1",
    effect_class: EffectClass | None = None,
    irreversible: bool | None = None,
    timeout_s: float = 30.0,
    settles_within_s: float | None = None,
    volatile: Sequence[str] = (),
    on_in_doubt: OnInDoubt | None = None,
    duplicate_scope: DuplicateScope = "job",
    duplicate_window_s: float = 86_400.0,
    probe: Callable[..., Any] | None = None,
    kind: EffectKind = "tool",
    isolation: Isolation | None = None,
) -> Callable[[Callable[P, R_co]], Tool[P, R_co]]:
    """Declare a function as a tool; a first parameter of type ToolContext is given, all others are arguments.

    Args:
        name: the function's own name by default.
        effect_class: pure, idempotent (the external system deduplicates by the external key), probeable (it can be
            asked by the external key) or opaque (none of these); there is no default.
        irreversible: needs approval, unless policy allows it. An opaque tool says it either way; others are reversible
            where nothing is said.
        timeout_s: after this many seconds the call is in doubt.
        settles_within_s: how long after its sender's end a request that was sent may still take effect; a probe's
            "not found" counts only after that. None: as long as `timeout_s`, if it is probeable. 0 says that what
            was sent has taken effect, or never will, when its sender ends: true only of what the same machine keeps.
        volatile: arguments and fields of the result that don't make a call another call.
        kind: http, where a call is one HTTP request and its effect is to be listed as that.
        isolation: process, where each call is to have a process of its own whatever the executor's setting says.
        on_in_doubt: what becomes of a call of which nobody can tell whether it took effect: park (a human resolves
            it) or fail (its step fails, not sure); None leaves it to the job and to the ledger's setting.
        duplicate_scope: where a call that means the same as an irreversible one that was done is refused: in its job,
            or best effort in its session or tenant, for `duplicate_window_s` (at most 30 days) from then on.
        probe: the same as `@tool_name.probe`.

    Raises:
        DeclarationError: what can't be registered as it is written; irreversible, and can't return an external id;
            a second tool under the name of a function of the same module.
    """
    if callable(name):  # @tool without parentheses
        raise _placed(DeclarationError(f"{_name_of(name)}: write @tool(…), and {_CHOICES}"), name)

    def declare(function: Callable[P, R_co]) -> Tool[P, R_co]:
        called = name or function.__name__
        if effect_class is None or (effect_class == "opaque" and irreversible is None):
            raise _placed(DeclarationError(f"{called}@{version}: {_CHOICES}"), function)
        _refuse_second(function, called, version)
        try:
            return Tool(
                function,
                name=called,
                version=version,
                effect_class=effect_class,
                irreversible=bool(irreversible),
                timeout_s=timeout_s,
                settles_within_s=settles_within_s,
                volatile=volatile,
                on_in_doubt=on_in_doubt,
                duplicate_scope=duplicate_scope,
                duplicate_window_s=duplicate_window_s,
                probe=probe,
                kind=kind,
                isolation=isolation,
            )
        except DeclarationError as refused:
            raise _placed(refused, function) from None

    return declare


def _placed(refused: DeclarationError, function: object) -> DeclarationError:
    refused.place = place_of(function) if callable(function) else None
    return refused


def _name_of(function: object) -> str:
    return str(getattr(function, "__name__", function))


def _refuse_second(function: Callable[..., Any], name: str, version: str) -> None:
    """A second function of one name in one run of a module: the first tool would be gone without a word.

    A module that is loaded again runs other code, so its tools may take the place of their former selves.
    """
    body = sys._getframe(2).f_code  # pyright: ignore[reportPrivateUsage]  what declares it
    known = _DECLARED.get(id(body))
    if known is None or known[0]() is not body:  # equal code is another's: of a module that was loaded again
        known = _DECLARED[id(body)] = (ref(body), {})
    lines = known[1]
    former = lines.get(function.__name__)
    if former is not None and body.co_name == "<module>":
        rule = f"a second function of the name {function.__name__}; the first, in line {former}, would be lost"
        raise _placed(DeclarationError(f"{name}@{version}: {rule}: rename one"), function)
    place = place_of(function)
    lines[function.__name__] = place[1] if place is not None else 0


_DECLARED: "dict[int, tuple[ref[CodeType], dict[str, int]]]" = {}
"""The code of each module that has declared tools, by its identity → its functions, and their lines."""


def place_of(function: Callable[..., Any]) -> tuple[str, int] | None:
    """The file and the line in which a function begins, its decorators first; None for what is no function."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return (code.co_filename, code.co_firstlineno) if isinstance(code, CodeType) else None


AnyTool = Tool[..., Any]


def _can_name(function: Callable[..., Any], key: str) -> bool:
    """Whether what a function is declared to return can carry the external system's id."""
    returned = hints_of(function, key).get("return")
    kinds = get_args(returned) or (returned,)
    return returned is Any or any(kind in (Result, Partial) for kind in kinds)


def wants_context(asks: Callable[..., Any]) -> str | None:
    """The name of the parameter of a probe or verifier that takes the ProbeContext."""
    hints = get_type_hints(asks)
    names = cast("Sequence[str]", list(inspect.signature(asks).parameters))
    return next((name for name in names if hints.get(name) is ProbeContext), None)
