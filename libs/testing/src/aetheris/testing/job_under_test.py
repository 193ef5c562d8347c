"""A job of a system in memory."""

from collections.abc import Mapping, Sequence
from typing import Any

from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages.events import Event
from aetheris.protocol.planning.invocation import success
from aetheris.sdk.client import Job, StepView
from aetheris.testing.faults import Named
from aetheris.testing.roles.executor import Made
from aetheris.testing.topics import START, Entry
from aetheris.views.standing import job_status, job_view


class JobUnderTest:
    """A job as its log says, at the time of asking."""

    def __init__(
        self, job_id: str, state: JobState, entries: list[Entry], made: Made, blobs: Mapping[str, Any]
    ) -> None:
        """`blobs`: the large results, by their hash."""
        self.job_id = job_id
        self.state = state
        self._entries = entries
        self._made = made
        self._blobs = blobs

    @property
    def view(self) -> Job:
        """What `aetheris job` and GET /jobs/{id} show."""
        return Job.model_validate(job_view(self.state, START.isoformat()))

    @property
    def status(self) -> str:
        """completed, failed, cancelled, waiting, paused, running, …"""
        return job_status(self.state)

    @property
    def why(self) -> str | None:
        """Why it does not go on, or has failed, in words."""
        return self.view.why

    @property
    def parked(self) -> tuple[str, ...]:
        """The nodes of which nobody can know whether they took effect: a human must `resolve` them."""
        return tuple(one.node_id for one in self.state.keys.values() if one.parked_because and one.outcome is None)

    @property
    def asked(self) -> tuple[str, ...]:
        """The nodes that wait for a human's approval, or for his answers to a form."""
        return tuple(step.node_id for step in self.view.steps if step.request_id is not None)

    @property
    def events(self) -> tuple[str, ...]:
        """The types of its events, in order."""
        return tuple(entry.body.event_type for entry in self._entries)

    @property
    def log(self) -> Sequence[Event]:
        """Its events, in order."""
        return [entry.body for entry in self._entries]

    @property
    def placed(self) -> list[tuple[Event, int]]:
        """Its events, in order, each with its offset."""
        return [(entry.body, entry.record.offset) for entry in self._entries]

    def note(self, entry: Entry) -> None:
        """One more event of it."""
        self._entries.append(entry)

    def step(self, node_id: str) -> StepView:
        """Where one step stands.

        Raises:
            LookupError: the plan has no such node.
        """
        found = next((one for one in self.view.steps if one.node_id == node_id), None)
        if found is None:
            raise LookupError(f"the plan has no node {node_id}")
        return found

    def result(self, node_id: str) -> Any:
        """What a step that succeeded returned.

        Raises:
            LookupError: it has not succeeded.
        """
        if self.step(node_id).state != "completed":
            raise LookupError(f"{node_id} has not succeeded: {self.step(node_id).state}")
        found = success(self.state, node_id)
        return found.result if found.result_ref is None else self._blobs[found.result_ref.sha256]

    def calls(self, tool: Named) -> int:
        """How often the tool's function was called for this job."""
        return self._made[self.job_id, tool if isinstance(tool, str) else tool.name]
