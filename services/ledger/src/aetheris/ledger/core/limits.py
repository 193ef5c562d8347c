"""The numbers that the core decides by; their defaults are in settings.py."""

from dataclasses import dataclass

from aetheris.protocol.plan.graph import OnInDoubt


@dataclass(frozen=True, slots=True)
class Limits:
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
