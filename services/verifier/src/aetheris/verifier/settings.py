"""The verifier's own settings; each is one environment variable, AETHERIS_<NAME>."""

from pathlib import Path

from pydantic import Field

from aetheris.runtime.process.settings import HttpSettings, SigningSettings
from aetheris.runtime.worker.checkpointer import EVERY


class VerifierSettings(HttpSettings, SigningSettings):
    """Which keys seal, and how much is read at once."""

    lazy_pause_s: float = Field(0.15, gt=0, description="Pause between reads: nobody waits for an audit or a seal")
    checkpoint_every: int = Field(
        EVERY, ge=1, description="Records of a partition after which a job that was there before gets a checkpoint"
    )
    seal_key: Path | None = Field(None, description="Ed25519 private key (PEM); dev makes one in the data folder")
    seal_key_uri: str | None = Field(
        None, description="The same in a token or a Vault that keeps it: pkcs11:… or vault+https:… (docs/evidence.md)"
    )
    seal_keys: Path | None = Field(
        None, description="Public keys of all seals, with times; default: keys/seal-keys.json in the data folder"
    )
    seal_log_key: Path | None = Field(
        None, description="Ed25519 private key (PEM) of the log of seals, another than the seal's; dev makes one"
    )
    seal_log: str = Field("aetheris.local/seals", description="Origin of the log of seals: a URL without scheme, yours")
    seal_policy: Path | None = Field(
        None, description="Logs and witnesses (tlog-policy): proofs come with checkpoints that its quorum has seen"
    )
    seal_witnessed: Path | None = Field(
        None,
        description="Folder of `aetheris seals relay`, with those checkpoints; default: witnessed in the data folder",
    )
    archive_after_days: float | None = Field(
        None, ge=0, description="Days behind its seal after which a job's bundle is put into the archive; unset: never"
    )
    interim_seal_s: float = Field(
        3600.0,
        gt=0,
        description="Pause between two interim seals of a job that is open; one that is parked gets another",
    )
    read_s: float = Field(10.0, gt=0, description="Deadline for reading a job's stream from Kafka")
