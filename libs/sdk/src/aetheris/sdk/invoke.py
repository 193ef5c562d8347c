"""Calling a tool once, and saying what came of it (docs/guarantees.md, "In doubt").

One send for each call: nothing here tries again. Whatever is not known to have had no effect is in doubt.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

from aetheris.protocol.base import recordable
from aetheris.sdk import redaction, remains
from aetheris.sdk.context import ProbeContext, ToolContext
from aetheris.sdk.isolation.errors import RaisedElsewhere
from aetheris.sdk.outcomes import (
    Answer,
    Confirmed,
    Drifted,
    Failed,
    Found,
    InDoubt,
    NotExecuted,
    NotFound,
    Outcome,
    Partial,
    Permanent,
    Result,
    Retryable,
    StateChange,
    Succeeded,
    Unknown,
    Verdict,
)
from aetheris.sdk.redaction import Redactor
from aetheris.sdk.results import recorded
from aetheris.sdk.schema import BadArguments
from aetheris.sdk.threads import THREADS, UnraisableEnd
from aetheris.sdk.tools import AnyTool, wants_context

T = TypeVar("T")

LONGEST_REASON = 500  # characters
_LONGEST_CLASS = 200  # characters of the name of an exception's class


Raised = Callable[[BaseException], None]
"""Hears what a tool has raised that nobody had declared: for its author; it is recorded by its class alone."""


async def invoke(
    tool: AnyTool,
    args: Mapping[str, Any],
    ctx: ToolContext,
    redactor: Redactor = redaction.NOTHING,
    raised: Raised = lambda _error: None,
) -> Outcome:
    """Call the tool once, within its timeout and the context's deadline.

    Never raises for what the tool does; a cancelled caller cancels the call and is told nothing.

    Args:
        redactor: knows the secrets among the arguments; what the tool says goes through it.
        raised: is told of an undeclared exception, in the call's own context; it may not raise.
    """
    try:
        bound = tool.signature.bind(args)
    except BadArguments as refused:
        return Permanent(_cut(redactor.text(f"invalid_args: {refused}")))
    within_s = min(tool.timeout_s, ctx.remaining())
    if within_s <= 0:
        return Retryable("the deadline passed before the call")
    remains.watch()
    call = _call(tool.key, tool.function, (ctx,) if tool.signature.injected else (), bound)
    outcome = partial(outcome_of, call, pure=tool.pure, redactor=redactor, raised=raised)
    return await _within(within_s + tool.ending_s, outcome, lambda name: _doubt(name, tool.pure))


async def ask_probe(tool: AnyTool, ctx: ProbeContext, timeout_s: float, raised: Raised = lambda _error: None) -> Answer:
    """Ask the external system about the call that carried `ctx.external_key`; `raised` gets errors, which are Unknown.

    Raises:
        LookupError: the tool has no probe.
    """
    if tool.asks is None:
        raise LookupError(f"{tool.key} has no probe")
    call = _call(tool.key, tool.asks, (ctx.external_key,), _context_argument(tool.asks, ctx))
    answer = await _asked(call, min(timeout_s, ctx.remaining()), raised)
    if isinstance(answer, Found):
        changes = _changes(answer.changes, redaction.NOTHING)
        return Found(recorded(answer.result)[0], answer.external_id, answer.evidence, changes)
    return answer if isinstance(answer, NotFound | Unknown) else _no_answer(answer)


async def verify(
    tool: AnyTool, change: StateChange, ctx: ProbeContext, timeout_s: float, raised: Raised = lambda _error: None
) -> Verdict:
    """Compare a recorded change with the external system; what goes wrong is Unknown, and told to `raised`.

    Raises:
        LookupError: the tool has no verifier.
    """
    if tool.verifies is None:
        raise LookupError(f"{tool.key} has no verifier")
    call = _call(tool.key, tool.verifies, (change,), _context_argument(tool.verifies, ctx))
    verdict = await _asked(call, min(timeout_s, ctx.remaining()), raised)
    return verdict if isinstance(verdict, Confirmed | Drifted | Unknown) else _no_answer(verdict)


async def _asked(call: Callable[[], Awaitable[Any]], within_s: float, raised: Raised) -> Any:
    return await _within(within_s, partial(_answer, call, raised), Unknown)


async def _answer(call: Callable[[], Awaitable[Any]], raised: Raised) -> Any:
    try:
        return await call()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a probe raises, the external system didn't answer
        raised(error)
        return Unknown(recordable.text(_class_of(error), _LONGEST_CLASS))


def _no_answer(answer: object) -> Unknown:
    return Unknown(f"a {type(answer).__name__} is no answer")


def _context_argument(asks: Callable[..., Any], ctx: ProbeContext) -> dict[str, Any]:
    name = wants_context(asks)
    return {name: ctx} if name else {}


async def outcome_of(
    call: Callable[[], Awaitable[Any]],
    *,
    pure: bool,
    redactor: Redactor = redaction.NOTHING,
    raised: Raised = lambda _error: None,
) -> Outcome:
    """What a call comes to, whatever it raises; of one that is `pure`, nothing is in doubt."""
    with remains.Calling() as this:
        try:
            return _succeeded(await call(), redactor)
        except NotExecuted as refused:
            return Retryable(_reason(refused, redactor))
        except Failed as refused:
            return Permanent(_reason(refused, redactor))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - any exception but the two declared ones: unknown
            returned = not pure and _acts_no_more(error, this)
            error_class = recordable.text(redactor.text(_class_of(error)), _LONGEST_CLASS)
            raised(error)
            return _doubt(error_class, pure, returned=returned)


def _acts_no_more(error: BaseException, call: remains.RunningCall) -> bool:
    """Whether the tool's code has ended by it, and left nothing; what only stands for another may be a cancellation."""
    if isinstance(error, RaisedElsewhere):
        return error.acts_no_more
    is_own = isinstance(error, Exception) and not isinstance(error, UnraisableEnd)
    return is_own and remains.nothing_lives(call)


def _class_of(error: BaseException) -> str:
    return error.error_class if isinstance(error, RaisedElsewhere) else type(error).__name__


def _doubt(error_class: str, pure: bool, *, returned: bool = False) -> Outcome:
    return Retryable(error_class) if pure else InDoubt(error_class, returned)


def _succeeded(returned: Any, redactor: Redactor) -> Succeeded:
    partial = isinstance(returned, Partial)
    inner = returned.result if isinstance(returned, Partial) else returned
    if not isinstance(inner, Result):
        result, data = _recorded(inner, redactor)
        return Succeeded(result, partial=partial, canonical=data)
    external_id = None if inner.external_id is None else _name(inner.external_id, redactor)
    changes = _changes(inner.changes, redactor)
    result, data = _recorded(inner.value, redactor)
    return Succeeded(result, external_id, changes, partial, canonical=data)


def _recorded(value: Any, redactor: Redactor) -> tuple[Any, bytes]:
    """A result without secrets, and its canonical bytes."""
    result, data = recorded(value)
    clean = redactor.value(result)
    return (result, data) if clean is result else recordable.result(clean)


def _changes(reported: Iterable[StateChange], redactor: Redactor) -> tuple[StateChange, ...]:
    """What a tool says that it changed, in texts; what is no change is left out."""
    return tuple(_change(one, redactor) for one in recordable.in_order(reported) if isinstance(one, StateChange))


def _change(change: StateChange, redactor: Redactor) -> StateChange:
    return StateChange(
        _name(change.resource_type, redactor),
        _name(change.resource_id, redactor),
        _name(change.operation, redactor),
        *(None if one is None else _name(one, redactor) for one in (change.version, change.etag, change.external_ref)),
    )


def _name(reported: object, redactor: Redactor) -> str:
    """Without secrets first: a part of one could not be found."""
    return recordable.name(redactor.text(recordable.as_text(reported)))


def _reason(error: Exception, redactor: Redactor) -> str:
    """The author's own words; they are meant to be recorded."""
    return _cut(redactor.text(recordable.as_text(error) or type(error).__name__))


def _cut(text: str) -> str:
    return recordable.text(text, LONGEST_REASON)


def _call(
    name: str, function: Callable[..., Any], first: tuple[Any, ...], rest: Mapping[str, Any]
) -> Callable[[], Awaitable[Any]]:
    called = partial(function, *first, **rest)
    return called if inspect.iscoroutinefunction(function) else partial(_called_in_thread, called, name)


async def _called_in_thread(called: Callable[[], Any], name: str) -> Any:
    returned = await THREADS.run(called, name)
    return await returned if inspect.isawaitable(returned) else returned


async def _within(within_s: float, work: Callable[[], Awaitable[T]], otherwise: Callable[[str], T]) -> T:
    """What `work()` comes to, or `otherwise(class name)` after the timeout or where the work cancels itself.

    The work is a task of its own, cancelled without waiting: a tool that won't be cancelled may not hold up whoever
    waits for it. It hands over what it comes to by itself: no callback, and a pass of the loop less.
    """
    loop = asyncio.get_running_loop()
    reported: asyncio.Future[T] = loop.create_future()
    task = loop.create_task(_hand_over(work, reported, otherwise))
    late = loop.call_later(within_s, _give, reported, otherwise, "TimeoutError")
    try:
        return await reported
    finally:
        late.cancel()
        task.cancel()


async def _hand_over(
    work: Callable[[], Awaitable[T]], reported: "asyncio.Future[T]", otherwise: Callable[[str], T]
) -> None:
    try:
        came = await work()
    except asyncio.CancelledError:
        _give(reported, otherwise, "CancelledError")
    except BaseException as error:  # noqa: BLE001 - it is raised again where it is awaited
        if not reported.done():
            reported.set_exception(error)
    else:
        if not reported.done():
            reported.set_result(came)


def _give(reported: "asyncio.Future[T]", otherwise: Callable[[str], T], error_class: str) -> None:
    if not reported.done():
        reported.set_result(otherwise(error_class))
