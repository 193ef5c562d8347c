"""The verifier's own settings; each is one environment variable, AETHERIS_<NAME>."""

from pathlib import Path

from pydantic import Field

from aetheris.streams.settings import RuntimeSettings


class VerifierSettings(RuntimeSettings):
    """Which key seals, and how long a probe may take."""

    seal_key: Path | None = Field(None, description="Ed25519 private key (PEM); dev makes one in the data folder")
    probe_timeout_s: float = Field(10.0, gt=0, description="Time that a tool's probe has to answer")
    probes_at_once: int = Field(16, ge=1, description="Probes that run at the same time")
    read_s: float = Field(10.0, gt=0, description="Deadline for reading a job's stream from Kafka")
