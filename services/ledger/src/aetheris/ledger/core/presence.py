"""Whether the executor that served a partition before a restart of its ledger is still there (docs/confirmation.md).

Pure, and from evidence alone: what it has started since then, the recorded end of its life, a grant that nobody took.
"""

from collections.abc import Collection

from aetheris.ledger.core.live_jobs import WorkerLife


class Presence:
    """Of one partition; `ended` is everything known of ended workers."""

    def __init__(self, ended: Collection[WorkerLife]) -> None:
        self._ended = ended
        self._serving: WorkerLife | None = None
        self._unknown = False

    @property
    def serving(self) -> WorkerLife | None:
        """Who started the last call here, as long as nothing says that it is gone."""
        return self._serving

    def restored(self) -> bool:
        """History was read; whether who made its calls is gone already."""
        self._unknown = self._serving is not None
        return self._serving is not None and self._serving in self._ended and self.gone(self._serving)

    def started(self, life: WorkerLife) -> bool:
        """A worker has started a call; whether that shows that the one before the restart serves no more."""
        moved, self._serving = self._unknown and life != self._serving, life
        self._unknown = False
        return moved

    def gone(self, life: WorkerLife) -> bool:
        """A worker has ended, or took up nothing; whether it was the one of before the restart, not seen since."""
        if life != self._serving:
            return False
        self._serving = None
        news, self._unknown = self._unknown, False
        return news
