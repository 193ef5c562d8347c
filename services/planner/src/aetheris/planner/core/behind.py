"""Records that come behind their job's seal: void ones, late reports, confirmations; its line is not written again."""

from collections import OrderedDict
from collections.abc import Callable, Iterator

from aetheris.protocol.base.stretches import Stretch, Stretches
from aetheris.protocol.messages.commands import JobBehind

_KEPT = 10_000
"""Jobs whose newest line is remembered: the table shows it a moment after it was written."""


class Behinds:
    """Where they lie; `reported` knows what jobs.index says of it, as far as the table was read."""

    def __init__(self, reported: Callable[[str], tuple[Stretch, ...]] = lambda _job_id: ()) -> None:
        self._told = reported
        self._known: OrderedDict[str, Stretches] = OrderedDict()
        self._news: dict[str, None] = {}

    def note(self, job_id: str, offset: int) -> None:
        """A record lies behind the seal of its job."""
        known = self._known.pop(job_id, None) or Stretches.known(self._told(job_id))
        self._known[job_id] = known
        if known.add(offset):
            self._news[job_id] = None

    def news(self) -> Iterator[JobBehind]:
        """The lines that are to be written."""
        news, self._news = self._news, {}
        for job_id in news:
            yield JobBehind(of_job=job_id, stretches=self._known[job_id].told())
        while len(self._known) > _KEPT:
            self._known.popitem(last=False)
