"""What `aetheris chaos` prints: counts, and each thing that is not as it should be."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from aetheris.rigs.chaos.recovery import EXECUTOR
from aetheris.rigs.chaos.runner import ChaosOutcome
from aetheris.rigs.chaos.schedule import LEASE_TTL_S, FaultKind, Struck


def as_json(outcome: ChaosOutcome, *, seed: int, jobs: int) -> dict[str, Any]:
    """For programs."""
    faults = [
        {**asdict(one.fault), **asdict(one), "fault": None, "kind": one.fault.kind.value} for one in outcome.struck
    ]
    head = {"seed": seed, "jobs": jobs, "took_s": round(outcome.took_s, 1), "reads": outcome.reads}
    recovery = {
        one.service: {"times": len(one.missed_s), "p50_s": round(one.p50_s, 2), "max_s": round(one.max_s, 2)}
        for one in outcome.recoveries
    }
    found = outcome.verdict.as_json()
    return {**head, **found, "lease_ttl_s": LEASE_TTL_S, "recovery": recovery, "faults": faults}


WRONG = ("duplicates", "lost", "stuck", "settleable", "parked_without_fault", "unproven", "failed")
"""The lists of a report that are empty where the promise was kept."""


def in_short(found: Mapping[str, Any]) -> str:
    """One line of a report for programs."""
    if "failed_to_run" in found:
        return f"DOES NOT HOLD: {found['failed_to_run']}"
    wrong = [f"{len(found[name])} {name.replace('_', ' ')}" for name in WRONG if found[name]]
    held = "holds" if found["holds"] else "DOES NOT HOLD"
    counts = (
        f"{found['observed']} of {found['expected']} effects, {len(found['faults'])} faults, {found['took_s']:.0f} s"
    )
    return ", ".join([f"{held}: {counts}", *wrong])


def lines(outcome: ChaosOutcome, *, seed: int, jobs: int) -> Iterator[tuple[str, Any]]:
    """Names and values, in the order in which they are read."""
    found = outcome.verdict
    struck = [one for one in outcome.struck if one.left_out is None]
    yield "seed", seed
    yield "faults", _counted(map(_name, struck))
    for reason, kinds in _left_out(outcome).items():
        yield "left out", f"{kinds}: {reason}"
    if not outcome.has_models:
        yield "left out", "jobs that a model plans: aetheris-cli[models] is not installed"
    yield (
        "jobs",
        f"{jobs}: {found.completed} completed, {found.cancelled} cancelled, {found.undone_jobs} failed as planned, "
        f"{len(found.failed)} otherwise",
    )
    yield "expected", f"{found.expected} effects"
    yield "observed", f"{found.observed}"
    yield "waiting", f"{found.waiting} for a human, or behind such a step"
    yield (
        "called off",
        f"{found.called_off} steps that were cancelled, or surely failed",
    )
    yield "undone", f"{found.undone} of {found.to_undo} steps"
    yield "duplicates", str(len(found.duplicates))
    yield "lost", str(len(found.lost))
    yield "repeats", f"{found.repeats} of an idempotent call, under its same key; {outcome.reads} reads"
    yield "in doubt", f"{len(found.in_doubt)}"
    for (reason, ended), count in sorted(Counter((one.reason, one.ended) for one in found.in_doubt).items()):
        yield "", f"{count} × {reason}: {ended}"
    yield "parked", str(len(found.parked))
    for one in found.parked:
        yield "", f"{one.job_id} {one.step}: {one.reason}; {one.fault or 'NO FAULT HIT IT'}"
    yield "stuck", str(len(found.stuck))
    yield (
        "proofs",
        f"{len(found.unproven)} of {found.ended} ended jobs don't verify",
    )
    yield "settleable", f"{len(found.settleable)} parked steps that the external system's final state settles"
    for wrong in (*found.settleable, *found.duplicates, *found.lost, *found.stuck, *found.failed, *found.unproven):
        yield "✗", wrong
    for one in outcome.recoveries:
        missed = f"{len(one.missed_s)} {'open calls' if one.service == EXECUTOR else 'kills'}"
        lasted = f"p50 {one.p50_s:.1f} s, max {one.max_s:.1f} s; the lease is {LEASE_TTL_S:.1f} s"
        yield f"{one.service} back", f"{missed}: {lasted}"
    yield "took", f"{outcome.took_s:.0f} s"
    yield "verdict", "holds" if found.holds else "DOES NOT HOLD"


def _name(one: Struck) -> str:
    """The kind; of a bad connection also to whom."""
    to = f" to {one.target}" if one.fault.kind in (FaultKind.SLOW, FaultKind.RESET) else ""
    return one.fault.kind.value + to


def _left_out(outcome: ChaosOutcome) -> dict[str, str]:
    reasons = {one.left_out for one in outcome.struck if one.left_out is not None}
    return {
        reason: _counted(one.fault.kind.value for one in outcome.struck if one.left_out == reason)
        for reason in sorted(reasons)
    }


def _counted(names: Iterable[str]) -> str:
    return ", ".join(f"{count} × {name}" for name, count in Counter(names).most_common())
