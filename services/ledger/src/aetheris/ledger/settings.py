"""The ledger's own settings; each is one environment variable, AETHERIS_<NAME>."""

from pathlib import Path

from pydantic import Field

from aetheris.ledger.core.limits import LedgerLimits, QuarantineLimits
from aetheris.protocol.plan.graph import OnInDoubt
from aetheris.runtime.process.settings import SigningSettings
from aetheris.runtime.worker.checkpointer import EVERY


class LedgerSettings(SigningSettings):
    """What the ledger lets run, and how long it waits before it doubts."""

    policy: Path | None = Field(None, description="Policy file (TOML); unset: irreversible calls need approval")
    signers: Path | None = Field(
        None,
        description="Whose SSH keys and passkeys count where a rule asks for signatures (allowed_signers of OpenSSH)",
    )
    checkpoint_every: int = Field(
        EVERY, ge=1, description="Records of a partition after which a job that was there before gets a checkpoint"
    )
    runs: bool = Field(default=True, description="Grant several nodes that follow each other at once")
    on_in_doubt: OnInDoubt = Field(
        "park", description="What becomes of a call in doubt, where job and tool say nothing"
    )
    max_tries: int = Field(10, ge=1, description="Tries of a call in doubt, where its plan sets no max_attempts")
    end_wait_s: float | None = Field(None, gt=0, description="Wait for a lost worker's end; unset: two lease TTLs")
    probe_tries: int = Field(6, ge=1, description="Unanswered probes of a call, then it is parked")
    probe_wait_s: float = Field(30.0, gt=0, description="How long a probe's answer is awaited")
    probe_backoff_s: float = Field(1.0, gt=0, description="First pause after a probe that knew nothing; doubles")
    quarantine_after: int = Field(
        10, ge=0, description="Failures of a tool in a row, then its calls wait; 0: they never do"
    )
    quarantine_jobs: int = Field(3, ge=1, description="How many jobs of a tenant those failures must come from")
    quarantine_s: float = Field(5.0, gt=0, description="How long a failing tool's calls wait at first; doubles")
    quarantine_max_s: float = Field(300.0, gt=0, description="How long they wait at most, then one is tried")
    unserved_s: float = Field(
        10.0, ge=0, description="How long a tool has no executor before the log says that its calls wait for one"
    )

    def limits(self) -> LedgerLimits:
        """The numbers that the core decides by."""
        return LedgerLimits(
            lease_ttl_s=self.lease_ttl_s,
            runs=self.runs,
            on_in_doubt=self.on_in_doubt,
            max_tries=self.max_tries,
            end_wait_s=self.end_wait_s if self.end_wait_s is not None else 2 * self.lease_ttl_s,
            probe_tries=self.probe_tries,
            probe_wait_s=self.probe_wait_s,
            probe_backoff_s=self.probe_backoff_s,
            quarantine=QuarantineLimits(
                self.quarantine_after, self.quarantine_jobs, self.quarantine_s, self.quarantine_max_s
            ),
            unserved_s=self.unserved_s,
        )
