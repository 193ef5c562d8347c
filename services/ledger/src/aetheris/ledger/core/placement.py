"""Grants go to the pool whose executors serve their tool; where none does, the call waits and the log says so.

Nothing rests on it: an executor that lacks the tool passes the grant over (docs/pools.md).
"""

from dataclasses import dataclass, replace

from aetheris.ledger.core import settlement, waits
from aetheris.ledger.core.decisions import Grant, Now
from aetheris.ledger.core.due_times import DueTimes
from aetheris.ledger.core.live_jobs import LiveJob, LiveJobs, Pending, Reopened, TimedDecision
from aetheris.ledger.core.settlement import JobKey
from aetheris.ledger.core.timer_queue import Item
from aetheris.protocol.fold.state import KeyState, PlanEntry
from aetheris.protocol.plan.graph import LOCAL_TOOLS, Kind
from aetheris.protocol.planning.goals import GOAL_ENTRY
from aetheris.protocol.planning.sessions import SESSION_ENTRY

_BUILT_IN = frozenset({SESSION_ENTRY.name, GOAL_ENTRY.name})
"""Workflows that every executor runs."""


@dataclass(frozen=True, slots=True)
class Placed:
    """What a call needs, in words, and the pool that has it; None where no executor does."""

    needed: str
    pool: str | None


class CallPlacement:
    """Of one partition: which calls wait for an executor, and since when."""

    def __init__(self, live_jobs: LiveJobs, due: DueTimes) -> None:
        self._live_jobs = live_jobs
        self._due = due
        self._held: dict[Item, None] = {}
        self._since: dict[str, float] = {}
        """What is needed → since when this process has known that no executor has it."""

    def changed(self, now: Now) -> bool:
        """Other executors live, or serve something else; whether a call here waits for one."""
        held, self._held = self._held, {}
        for item in held:
            self._due.look_again(item, now)
        return bool(held)

    def place(self, job: LiveJob, held: Pending | Reopened, item: Item, step: TimedDecision, now: Now) -> TimedDecision:
        """A grant for the pool that serves it, as far as one pool serves the run; none where no executor does."""
        granted = step.grant()
        if granted is None or not self._live_jobs.context.placement:
            return step
        message = granted.message
        node_id = message.nodes[0]
        placed = self._placed(job, node_id)
        state = job.state.keys.get(message.idempotency_key) or KeyState(node_id)
        job_key = JobKey(job.state, message.idempotency_key, state)
        waiting = job.state.open_waits.get((waits.EXECUTOR, node_id))
        if placed.pool is None:
            held.grants -= 1
            return self._hold(job_key, node_id, item, placed.needed, now)
        self._since.pop(placed.needed, None)
        if waiting is not None:
            held.grants -= 1
            ended = settlement.emit(job_key, waits.executor_found(job_key, node_id, waiting))
            return TimedDecision((ended,), now.mono_s + self._live_jobs.context.limits.lease_ttl_s)
        return TimedDecision((self._for_pool(job, granted, placed.pool),), step.due_s)

    def _hold(self, job_key: JobKey, node_id: str, item: Item, needed: str, now: Now) -> TimedDecision:
        self._held[item] = None
        if (waits.EXECUTOR, node_id) in job_key.job.open_waits:
            return TimedDecision((), float("inf"))  # an executor that comes hurries it
        told_s = self._since.setdefault(needed, now.mono_s) + self._live_jobs.context.limits.unserved_s
        if now.mono_s < told_s:
            return TimedDecision((), told_s)
        begun = settlement.emit(job_key, waits.for_executor(job_key, node_id, needed))
        return TimedDecision((begun,), float("inf"))

    def _for_pool(self, job: LiveJob, granted: Grant, pool: str) -> Grant:
        message = granted.message
        later = enumerate(message.nodes[1:], 1)
        end = next((place for place, one in later if self._placed(job, one).pool != pool), len(message.nodes))
        own = {"pool": pool, "nodes": message.nodes[:end], "rules": message.rules[:end]}
        return replace(granted, message=message.model_copy(update=own))

    def _placed(self, job: LiveJob, node_id: str) -> Placed:
        placement, entry = self._live_jobs.context.placement, job.state.entry(node_id)
        if placement is None or entry is None:
            return Placed("", None)
        node, pin = entry.node, entry.pin
        if node.tool in LOCAL_TOOLS:
            return Placed(node.tool_name, self._pool_of_body(job, entry))
        if pin is not None and node.tool is not None and node.tool not in _BUILT_IN:
            key = f"{node.tool}@{pin.version}"
            return Placed(key, placement.pool_of(key, pin.schema_hash))
        model = node.args.get("model") if node.kind is Kind.LLM else None
        if isinstance(model, str):
            return Placed(f"model:{model}", placement.pool_of(f"model:{model}", ""))
        return Placed(node.tool_name, placement.any_pool())

    def _pool_of_body(self, job: LiveJob, entry: PlanEntry) -> str | None:
        """A workflow's own function runs where its body does."""
        placement, call = self._live_jobs.context.placement, entry.call
        key = job.state.invocation_keys.get(call.invocation_id) if call is not None else None
        started = job.state.keys[key].started if key is not None else None
        if placement is None or started is None:
            return None
        return placement.pool_of_worker(started.worker_id)
