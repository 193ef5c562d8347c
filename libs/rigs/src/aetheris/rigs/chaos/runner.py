"""One chaos run: jobs in, faults in between, quiet, and the count."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from aetheris.cli.embedded.jars import Progress
from aetheris.protocol.messages.events import Event
from aetheris.rigs.chaos.external_server import ExternalServer, running_external_server
from aetheris.rigs.chaos.faults import FaultInjector
from aetheris.rigs.chaos.observer import JobsObserver, observing
from aetheris.rigs.chaos.recovery import Recovery, recoveries
from aetheris.rigs.chaos.schedule import JobPlan, ScheduledFault, Struck, faults, job_plans
from aetheris.rigs.chaos.system import ChaosSystem, running
from aetheris.rigs.chaos.tools import REFUSES, TOOLS
from aetheris.rigs.chaos.verdict import ChaosVerdict, has_done, is_settled, verdict
from aetheris.sdk.client import ApiError, Conflict, Goal, ResourceNotFound, Unreachable

TOOLS_KNOWN_WITHIN_S = 60.0
SUBMIT_WITHIN_S = 120.0
QUIET_WITHIN_S = 180.0
UNMOVED_S = 90.0
"""Jobs that are open, on a system that is ready, and of which no event was seen for so long are stuck."""

ATTEND_EVERY_S = 0.5

HISTORIES = "histories"
"""The folder with the events of jobs that somebody may want to look at."""

_LONGEST_LULL_S = 1.5
"""A fault waits for effects, but no longer than this without one."""

_LOOK_EVERY_S = 0.02


@dataclass(frozen=True)
class ChaosOutcome:
    """A run's verdict and what was done."""

    verdict: ChaosVerdict
    struck: Sequence[Struck]
    recoveries: Sequence[Recovery]
    reads: int
    took_s: float
    has_models: bool = True


def run(data: Path, *, jobs: int, kills: int, seed: int, progress: Progress, brokers: int = 1) -> ChaosOutcome:
    """Start a system on the folder, hurt it, wait until it is quiet, count.

    Raises:
        EmbeddedError, ApiError, TimeoutError.
    """
    begun_s = time.monotonic()
    with (
        running_external_server(data / "outside") as external,
        running(data, urlsplit(external.url).port or 0, progress, brokers) as system,
        observing(system.state().kafka) as observer,
    ):
        hand = FaultInjector(system)
        try:
            history = _ChaosRun(system, external, observer, hand, progress)
            history.await_tools()
            history.storm(faults(seed, kills, jobs, brokers), job_plans(seed, jobs))
            history.quiesce()
        finally:
            hand.close()
        found = verdict(history.jobs, observer.jobs, observer.names, external.effects(), hand.struck)
        found.unproven += history.unproven()
        _keep(data / HISTORIES, found.looked_at, observer)
        recovered = recoveries(observer.jobs, hand.struck)
        took_s = time.monotonic() - begun_s
        return ChaosOutcome(found, hand.struck, recovered, external.reads(), took_s, system.has_models)


def _keep(folder: Path, jobs: Iterable[str], observer: JobsObserver) -> None:
    """The events of these jobs, each with when it was read."""
    folder.mkdir(exist_ok=True)
    for job_id in jobs:
        seen = observer.jobs.get(job_id)
        reported = (
            [] if seen is None else [f"{at_s:.3f} {event.event_type} {_json(event)}" for at_s, event in seen.events]
        )
        (folder / job_id).write_text("\n".join([*reported, ""]))


def _json(event: Event) -> str:
    return event.model_dump_json(exclude_none=True, exclude={"result", "job_id", "task_graph", "diff"})


@dataclass
class _ChaosRun:
    system: ChaosSystem
    external: ExternalServer
    observer: JobsObserver
    hand: FaultInjector
    progress: Progress
    jobs: dict[str, JobPlan] = field(default_factory=dict[str, JobPlan])
    errands: dict[str, JobPlan] = field(default_factory=dict[str, JobPlan])
    """Jobs that somebody is still to signal, or to cancel."""
    attended_s: float = 0.0

    def await_tools(self) -> None:
        """The gateway learns of tools from the log, a moment after an executor has announced them."""
        self._wait(self._tools_known, TOOLS_KNOWN_WITHIN_S)

    def storm(self, struck: Sequence[ScheduledFault], plans: Sequence[JobPlan]) -> None:
        """Before each fault comes its share of the jobs: every one of them finds work under way."""
        submitted = 0
        for fault in struck:
            share = -(-(fault.number + 1) * len(plans) // len(struck))
            for plan in plans[submitted:share]:
                self._submit(plan)
            submitted = max(submitted, share)
            self._await_effects(fault.after_effects)
            done = self.hand.strike(fault)
            self._report(done)
        for plan in plans[submitted:]:
            self._submit(plan)

    def quiesce(self) -> None:
        """Take back what lasts, and wait until every job has ended or waits for a human."""
        self.progress("quiet", "no more faults")
        self.hand.stop()
        try:
            self._wait(lambda: not self.hand.restless() and not self.system.unready(), QUIET_WITHIN_S)
        except TimeoutError:
            waits_for = [*self.hand.restless(), *(f"{part} is not ready" for part in self.system.unready())]
            raise TimeoutError(f"not quiet within {QUIET_WITHIN_S:.0f} s: {', '.join(waits_for)}") from None
        observed, since_s = -1, time.monotonic()
        while (open_jobs := self._open()) and time.monotonic() < since_s + UNMOVED_S:
            if (now_heard := self._observed()) != observed:
                observed, since_s = now_heard, time.monotonic()
            self._attend()
            time.sleep(_LOOK_EVERY_S)
        self.progress("quiet", f"{len(open_jobs)} jobs are open" if open_jobs else "every job has ended or waits")

    def unproven(self) -> list[str]:
        """The ended jobs whose proofs don't hold."""
        with self.observer.lock:
            ended = [job for job in self.jobs if job in (known := self.observer.jobs) and known[job].state.terminal]
        reports = {job: self._verified(job) for job in ended}
        return [f"{job}: {report['violations']}" for job, report in reports.items() if not report["ok"]]

    def _verified(self, job: str) -> dict[str, Any]:
        until_s = time.monotonic() + SUBMIT_WITHIN_S
        while True:
            try:
                return self.system.client.verify(job)
            except Unreachable:
                if time.monotonic() > until_s:
                    raise
                time.sleep(_LOOK_EVERY_S)

    def _submit(self, plan: JobPlan) -> None:
        """Ask until it is taken; the key makes that safe."""
        until_s = time.monotonic() + SUBMIT_WITHIN_S
        while True:
            self._attend()
            try:
                job = self.system.client.submit(self._asked(plan), idempotency_key=plan.idempotency_key)
            except Unreachable:
                if time.monotonic() > until_s:
                    raise
                time.sleep(_LOOK_EVERY_S)
            else:
                self.jobs[job.job_id] = plan
                if plan.signal is not None or plan.cancelled:
                    self.errands[job.job_id] = plan
                return

    def _asked(self, plan: JobPlan) -> Mapping[str, Any] | Goal:
        with_model = plan.goal is not None and self.system.has_models
        return Goal(goal=plan.goal or "", tools=(*TOOLS.values(),)) if with_model else plan.plan

    def _attend(self) -> None:
        """What people do meanwhile: approve, signal, cancel; again where nobody answered."""
        self.hand.tick()
        if time.monotonic() < self.attended_s + ATTEND_EVERY_S:
            return
        self.attended_s = time.monotonic()
        with suppress(ApiError):
            for one in self.system.approver.approvals(limit=20).approvals:
                self.system.approver.respond(one.request_id, "approve")
        for job_id, plan in list(self.errands.items()):
            with suppress(Unreachable):
                if self._run_errand(job_id, plan):
                    del self.errands[job_id]

    def _run_errand(self, job_id: str, plan: JobPlan) -> bool:
        """False where it is too early: what is to be undone must have been done."""
        if plan.cancelled and plan.undone and not self._has_done(job_id):
            return False
        with suppress(Conflict):  # it has ended before
            if plan.signal is not None:
                self.system.client.signal(job_id, plan.signal, {"go": True})
            else:
                self.system.client.cancel(job_id, reason="chaos", compensate=plan.undone)
        return True

    def _has_done(self, job_id: str) -> bool:
        with self.observer.lock:
            seen = self.observer.jobs.get(job_id)
            return seen is not None and has_done(seen.state)

    def _await_effects(self, further: int) -> None:
        """Return after so many further effects, or once nothing happens any more."""
        wanted = self.external.count() + further
        seen, since_s = -1, time.monotonic()
        while (now_seen := self.external.count()) < wanted and time.monotonic() < since_s + _LONGEST_LULL_S:
            if now_seen != seen:
                seen, since_s = now_seen, time.monotonic()
            self._attend()
            time.sleep(_LOOK_EVERY_S)

    def _report(self, done: Struck) -> None:
        what = f"{done.fault.kind.value} {done.target}".rstrip()
        self.progress(f"fault {done.fault.number}", f"{what}: left out, {done.left_out}" if done.left_out else what)

    def _open(self) -> list[str]:
        with self.observer.lock:
            known = self.observer.jobs
            return [job for job in self.jobs if not is_settled(known[job].state if job in known else None)]

    def _observed(self) -> int:
        with self.observer.lock:
            return sum(len(seen.events) for seen in self.observer.jobs.values())

    def _tools_known(self) -> bool:
        try:
            return {tool["name"] for tool in self.system.client.tools()} >= {REFUSES, *TOOLS.values()}
        except (Unreachable, ResourceNotFound):
            return False

    def _wait(self, holds: Callable[[], bool], deadline_s: float) -> None:
        until_s = time.monotonic() + deadline_s
        while not holds():
            if time.monotonic() > until_s:
                raise TimeoutError(f"not within {deadline_s:.0f} s")
            self._attend()
            time.sleep(_LOOK_EVERY_S)
