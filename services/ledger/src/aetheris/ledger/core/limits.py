"""The numbers that the core decides by; their defaults are in settings.py."""

from dataclasses import dataclass

from aetheris.protocol.plan.graph import OnInDoubt


@dataclass(frozen=True, slots=True)
class QuarantineLimits:
    """When a tool's calls are held, and for how long."""

    after: int
    """Failures in a row; 0: never."""
    jobs: int
    """How many jobs they must come from."""
    first_s: float
    longest_s: float


@dataclass(frozen=True, slots=True)
class LedgerLimits:
    """Seconds, counts, and one choice."""

    lease_ttl_s: float
    end_wait_s: float
    """How long a worker's end is awaited before a call that was not found is parked."""
    probe_wait_s: float
    probe_backoff_s: float
    probe_tries: int
    max_tries: int
    on_in_doubt: OnInDoubt
    runs: bool
    quarantine: QuarantineLimits
    unserved_s: float = 10.0
    """How long no executor has served a call's tool before the log says that the call waits for one."""
