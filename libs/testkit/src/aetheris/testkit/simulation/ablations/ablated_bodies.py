"""Ablations of what keeps the calls of bodies one path, made once (docs/guarantees.md, "Calls of a body")."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages import events as ev
from aetheris.testkit.simulation.ablations.ablation import Ablation, always

_EXECUTOR = "aetheris.tool_executor.core.body_runs.RunningBody"
_FOLD = "aetheris.protocol.fold"


def _named(real: Callable[..., Any]) -> Callable[..., Any]:
    """A call starts for the body that runs, whoever has planned it."""

    def may_start_first(job: JobState, parent: str, _invocation_id: str | None) -> bool:
        body = job.bodies.of.get(parent) if job.bodies is not None else None
        return body is not None and real(job, parent, body.invocation_id)

    return may_start_first


def _expects_nothing(real: Callable[..., Any]) -> Callable[..., Any]:
    def init(run: Any, invocation: Any, _expected: Iterable[str], recorded_code: Any) -> None:
        real(run, invocation, (), recorded_code)

    return init


def _ends_without_charge(_: Callable[..., Any]) -> Callable[..., Any]:
    """Any body's end counts, as any try's does."""

    def may_end(_job: JobState, _e: ev.ToolInvocationFinished) -> bool:
        return True

    return may_end


def _told_by_name(real: Callable[..., Any]) -> Callable[..., Any]:
    """A new body is told in the order of the ids, not in that of the log."""

    def begin(bodies: Any, job: JobState, invocation: Any) -> Any:
        run, history = real(bodies, job, invocation)
        return run, sorted(history)

    return begin


def _never_woken(_: Callable[..., Any]) -> Callable[..., Any]:
    def settled(*_: Any) -> None:
        """Nobody is woken."""

    return settled


def _told_at_once(_: Callable[..., Any]) -> Callable[..., Any]:
    """Also what is not the only thing that it waits for."""

    def may_be_told_early(run: Any, node_id: str) -> bool:
        return run.over is None and node_id not in run._told.all and run.reads(node_id)

    return may_be_told_early


def _handed_on_early(_: Callable[..., Any]) -> Callable[..., Any]:
    """Also of what it hands on, before whoever is given it can read it."""

    def may_be_told_early(run: Any, node_id: str) -> bool:
        return run.over is None and run._awaited == frozenset((node_id,)) and node_id not in run._told.all

    return may_be_told_early


_BODIES: tuple[Ablation, ...] = (
    Ablation(
        "with a start for whoever runs",
        "a call starts first for the body that has planned it, and only while that is in charge",
        400,
        {f"{_FOLD}.start.may_start_first": _named, "aetheris.ledger.core.body_starts.may_start_first": _named},
    ),
    Ablation(
        "without the frontier",
        "a body plans nothing new before it has asked for what is recorded, in fold and executor",
        400,
        {
            f"{_FOLD}.child_calls.has_asked": always(value=True),
            f"{_FOLD}.bodies.has_asked": always(value=True),
            f"{_EXECUTOR}.__init__": _expects_nothing,
        },
    ),
    Ablation(
        "with an end of any body",
        "a body ends by its own word while it is in charge, and behind its calls",
        400,
        {
            f"{_FOLD}.rules.may_end": _ends_without_charge,
            f"{_EXECUTOR}.may_report": always(value=True),
        },
    ),
    Ablation(
        "with what settled in any order",
        "a body is told how its calls have settled in the order of the log",
        400,
        {"aetheris.tool_executor.core.hosted_bodies.HostedBodies.begin": _told_by_name},
    ),
    Ablation(
        "with several told early",
        "before the log has it a body is told a result only where it waits for nothing else",
        1_000,
        {f"{_EXECUTOR}.may_be_told_early": _told_at_once},
    ),
    Ablation(
        "with what is handed on told early",
        "before the log has a result a body can't hand it on",
        400,
        {f"{_EXECUTOR}.may_be_told_early": _handed_on_early},
    ),
    Ablation(
        "without waking",
        "a body that sleeps runs again when one of its calls has settled",
        400,
        {"aetheris.ledger.core.body_calls.BodyCalls.settled": _never_woken},
    ),
)
BODIES = tuple(replace(one, bodies=True) for one in _BODIES)
