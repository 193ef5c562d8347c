"""A job whose log holds what this version can't read waits for one that can, and says so (pure)."""

from collections.abc import Iterator

from aetheris.planner.core.decisions import Output, fact
from aetheris.planner.core.progress import JobProgress
from aetheris.protocol.messages import events as ev


def waits(progress: JobProgress) -> Iterator[Output]:
    """That it waits, once."""
    job, sent = progress.job, progress.sent
    if job.terminal is None and not progress.waits_for_upgrade and not sent.upgrade:
        sent.upgrade = True
        yield fact(ev.JobWaiting(job_id=job.job_id, wait_type="upgrade"), "upgrade", str(job.last_offset))


def goes_on(progress: JobProgress) -> Iterator[Output]:
    """This version reads what an older one could not."""
    job, sent = progress.job, progress.sent
    if not sent.upgrade:
        sent.upgrade = True
        yield fact(ev.WaitCompleted(job_id=job.job_id, wait_type="upgrade"), "upgrade", str(job.last_offset))
