"""The catalogue of metrics (docs/metrics.md): what each is called, in which unit, and what it says."""

from enum import Enum

_UNITS = {"s": "_seconds", "By": "_bytes"}


class Metric(Enum):
    """(name, unit, what it says)."""

    VIOLATIONS = ("aetheris.violations", "{violation}", "Rules that a job's history breaks, by rule")
    IN_DOUBT = (
        "aetheris.invocations.in_doubt",
        "{invocation}",
        "Calls of which nobody knew whether they took effect, by cause",
    )
    PARKED = ("aetheris.invocations.parked", "{invocation}", "Calls left to a human")
    CONTRADICTED = (
        "aetheris.invocations.contradicted",
        "{invocation}",
        "Successes that came after their key was settled otherwise: a second effect may exist",
    )
    UNTRACEABLE = ("aetheris.effects.untraceable", "{effect}", "Irreversible effects without an external id, by tool")
    UNCONFIRMED = (
        "aetheris.confirmations.failed",
        "{effect}",
        "Recorded effects that the external system no longer bears out",
    )
    TOOL_REFUSED = (
        "aetheris.tools.refused",
        "{call}",
        "Calls of blocking tools that were refused: too many threads of calls that timed out still run, by tool",
    )
    TOOL_LINES_REFUSED = (
        "aetheris.tools.lines_refused",
        "{record}",
        "Lines of tools.registry that describe no tool and no model: passed over",
    )
    QUARANTINED = ("aetheris.tools.quarantined", "{pause}", "Pauses of tools that failed whoever called them, by tool")
    GLASS_BROKEN = (
        "aetheris.glass.broken",
        "{decision}",
        "Decisions taken alone, in an emergency, by what",
    )
    LEASE_CONFLICTS = ("aetheris.lease.conflicts", "{lease}", "Heartbeats for a lease that somebody else holds")
    GRANTS_DROPPED = (
        "aetheris.grants.dropped",
        "{grant}",
        "Grants dropped again, as they name an earlier activation than the executor goes by",
    )
    LOGINS_REFUSED = ("aetheris.logins.refused", "{login}", "Requests without a token that counts, by reason")
    LIMITED = ("aetheris.requests.limited", "{request}", "Requests beyond a limit of their tenant or token, by limit")
    ACCESSES_LOST = ("aetheris.accesses.lost", "{record}", "Accesses that could not be recorded")
    NOTICES_UNTOLD = ("aetheris.notices.untold", "{notice}", "Notices that the gateway takes no job for, by reason")
    STARTS_REFUSED = ("aetheris.starts.refused", "{occasion}", "Due times and messages that start no job, by start")
    DEAD_LETTERS = ("aetheris.dead_letters", "{record}", "Records that could not be decoded, since the start")
    UNJUDGED = ("aetheris.jobs.unjudged", "{job}", "Jobs that a service failed to judge: they stand still, by error")
    REFUSED = ("aetheris.records.refused", "{record}", "Records that the brokers will not have, by topic and reason")
    UNSIGNED = (
        "aetheris.messages.unsigned",
        "{record}",
        "Commands and lines of tables that nobody signed who may write them: no service obeys them, by topic and type",
    )
    ARCHIVE_LATE = ("aetheris.archive.late", "s", "For how long the oldest job waits that should be archived, now")
    ARCHIVE_REFUSED = (
        "aetheris.archive.refused",
        "{job}",
        "Sealed jobs that can't be archived, as their bundle would prove nothing, now",
    )
    PARQUET_LATE = ("aetheris.parquet.late", "s", "For how long a sealed job should be in Parquet and is not, now")
    PARQUET_REFUSED = (
        "aetheris.parquet.refused",
        "{job}",
        "Sealed jobs that are not written as Parquet, as their records are not what was sealed, since the start",
    )
    UNREAD = ("aetheris.jobs.unread", "{job}", "Jobs that can't be read, and are asked for again and again, now")
    UNWITNESSED = (
        "aetheris.seals.unwitnessed",
        "s",
        "For how long the oldest seal waits that not enough witnesses have seen, now",
    )
    BLOCKED = (
        "aetheris.loop.blocked",
        "{block}",
        "Times that something held up a service's event loop for over a second, by tool or function",
    )
    LOG_CUT = (
        "aetheris.log.cut",
        "{partition}",
        "Partitions of jobs.events that lack what a service had read of them, now",
    )
    STUCK_JOBS = ("aetheris.jobs.stuck", "{job}", "Jobs that go on no more and wait for nobody, now")
    LAG = ("aetheris.consumer.lag", "{record}", "Records of the log that were not read yet, now")
    JOBS_CREATED = ("aetheris.jobs.created", "{job}", "Jobs created, by tenant")
    JOBS_ENDED = ("aetheris.jobs.ended", "{job}", "Jobs that have ended, by how and tenant")
    JOBS_LIVE = ("aetheris.jobs.live", "{job}", "Jobs that are not sealed, now")
    JOBS_AT_REST = (
        "aetheris.jobs.at_rest",
        "{job}",
        "Jobs that a service keeps packed: nothing of them is due, now",
    )
    PACKED = ("aetheris.jobs.packed", "By", "Bytes that the jobs at rest are packed into, now")
    JOB_DURATION = ("aetheris.job.duration", "s", "From a job's creation to its end")
    STEPS = ("aetheris.steps.finished", "{step}", "Steps finished, by what came of them and tenant")
    CALLS = ("aetheris.calls.ended", "{call}", "Calls of tools that ended, by outcome and tool")
    EFFECTS = ("aetheris.effects.committed", "{effect}", "Results that steps rest on, by tool")
    STEP_DURATION = ("aetheris.step.duration", "s", "From a call's start to its end, by tool")
    QUEUE_DURATION = ("aetheris.queue.duration", "s", "From the planner's request of a step to its start")
    APPROVAL_DURATION = ("aetheris.approval.duration", "s", "From a request to a human to his decision")
    DOUBT_DURATION = ("aetheris.doubt.duration", "s", "From a call's doubt to what settles it")
    RECOVERY_DURATION = (
        "aetheris.recovery.duration",
        "s",
        "From a worker's end, or the doubt, to the next start",
    )
    PREVENTED = ("aetheris.duplicates.prevented", "{call}", "Calls not made a second time, by how that was known")
    APPROVALS_OPEN = ("aetheris.approvals.open", "{request}", "Requests that wait for a human's decision, now")
    PARKED_OPEN = ("aetheris.calls.parked", "{call}", "Calls of which a human must say what became, now")
    LEASES = ("aetheris.leases.held", "{lease}", "Leases that this executor renews, now")
    SEALS = ("aetheris.seals.made", "{seal}", "Seals that were read in their jobs' streams")
    SEAL_DURATION = ("aetheris.seal.duration", "s", "From a job's end to its seal")
    SEALS_LATE = ("aetheris.seals.late", "s", "For how long the oldest job that has ended waits for its seal, now")
    TOKENS = ("aetheris.tokens.used", "{token}", "Tokens that models' providers count, by model, tenant and direction")
    MODEL_COST = ("aetheris.answers.cost", "{microdollar}", "What models' answers cost, as their providers' prices say")
    CPU = ("aetheris.process.cpu", "s", "Processor time that this process has used, since its start")

    def __init__(self, metric: str, unit: str, says: str) -> None:
        self.metric = metric
        self.unit = unit
        self.says = says

    def in_prometheus(self, *, grows: bool = False) -> str:
        """Its name there, by OpenTelemetry's rules for Prometheus: with its unit, where it has one, and `_total`."""
        return self.metric.replace(".", "_") + _UNITS.get(self.unit, "") + ("_total" if grows else "")
