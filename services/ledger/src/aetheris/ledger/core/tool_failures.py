"""Tools that fail whoever calls them: what of the log counts for or against one, and which grants wait for it."""

from dataclasses import replace

from aetheris.ledger.core.decisions import Grant, Now
from aetheris.ledger.core.due_times import DueTimes
from aetheris.ledger.core.live_jobs import LiveJob, LiveJobs, Pending, Reopened, TimedDecision
from aetheris.ledger.core.quarantine import Quarantine, TenantTool, concerns_tool
from aetheris.ledger.core.timer_queue import Item
from aetheris.protocol.messages import events as ev
from aetheris.protocol.plan.graph import Kind


class ToolFailures:
    """Of one partition: `quarantine` knows the failures that this process has folded since it was restored."""

    def __init__(self, live_jobs: LiveJobs, due: DueTimes) -> None:
        self._live_jobs = live_jobs
        self._due = due
        self.quarantine = Quarantine(live_jobs.context.limits.quarantine)

    def judge(self, job: LiveJob, event: ev.ToolInvocationFinished | ev.InvocationInDoubt, now: Now) -> None:
        """What a try itself says of how it ended counts for, or against, its tool."""
        if not self._live_jobs.is_restored:
            return
        key = event.idempotency_key
        tool, verdict = _tool(job, event.node_id), concerns_tool(event)
        if tool is None or verdict is None or not self.quarantine.counts(tool, self._live_jobs.folded):
            return
        if verdict:
            waiting = self.quarantine.succeeded(tool, now)
        else:
            waiting = self.quarantine.failed(tool, (job.state.job_id, key), now)
        for item in waiting:
            self._due.look_again(item, now)

    def release(self, tool: TenantTool, below: int, now: Now) -> bool:
        """A person says that its calls wait no longer; whether any did."""
        held = tool in self.quarantine
        for item in self.quarantine.released(tool, below, now):
            self._due.look_again(item, now)
        return held

    def sift(self, job: LiveJob, held: Pending | Reopened, item: Item, step: TimedDecision, now: Now) -> TimedDecision:
        """No grant goes out for a call of a tool in quarantine, but for its trial; a run ends before one."""
        granted = step.grant()
        if granted is None or not self.quarantine:
            return step
        message = granted.message
        tool = _tool(job, message.nodes[0])
        if tool is not None:
            call, lasts_s = (job.state.job_id, message.idempotency_key), _lasts_s(job, message.nodes[0])
            due_s = self.quarantine.wait(tool, call, item, lasts_s, now)
            if due_s is not None:
                held.grants -= 1
                return TimedDecision((), due_s)
        cut = self._cut(job, granted)
        return step if cut is None else TimedDecision((cut,), step.due_s)

    def _cut(self, job: LiveJob, granted: Grant) -> Grant | None:
        """The run as far as it calls no other tool in quarantine; None where it is all of it."""
        message = granted.message
        later = enumerate(message.nodes[1:], 1)
        end = next((place for place, node_id in later if _tool(job, node_id) in self.quarantine), None)
        if end is None:
            return None
        cut = message.model_copy(update={"nodes": message.nodes[:end], "rules": message.rules[:end]})
        return replace(granted, message=cut)


def _tool(job: LiveJob, node_id: str) -> TenantTool | None:
    entry = job.state.entry(node_id)
    if entry is None or entry.pin is None or entry.node.kind is Kind.WORKFLOW:
        return None  # what ails code is not cured by time
    return TenantTool(job.state.created.tenant, entry.node.tool_name)


def _lasts_s(job: LiveJob, node_id: str) -> float:
    entry = job.state.entry(node_id)
    return (entry.timeout_s if entry is not None else None) or 0.0
