"""The gateway's own settings; each is one environment variable, AETHERIS_<NAME>."""

from pathlib import Path

from pydantic import Field

from aetheris.runtime.process.settings import HttpSettings, SigningSettings, SubjectSettings


class GatewaySettings(HttpSettings, SigningSettings, SubjectSettings):
    """Who may call, where the verifier is, and how long a request may take."""

    tokens: Path | None = Field(None, description="Bearer tokens (TOML); default: tokens.toml in the data folder")
    oidc: Path | None = Field(None, description="OpenID providers whose tokens are believed (TOML); unset: none")
    policy: Path | None = Field(
        None, description="The ledgers' policy file (TOML): whom it names in [operate]; unset: nobody"
    )
    limits: Path | None = Field(None, description="What tenants and principals may ask for (TOML); unset: no limit")
    signers: Path | None = Field(
        None,
        description="Whose SSH keys and passkeys count where a rule asks for signatures (allowed_signers of OpenSSH)",
    )
    verifier_url: str = Field("http://127.0.0.1:8081", description="The verifier's HTTP address, for proofs")
    answer_s: float = Field(5.0, gt=0, description="How long a command waits for the event that answers it")
    request_s: float = Field(10.0, gt=0, description="Deadline of what a request asks of Kafka, Redis or verifier")
    reconcile_every_s: float | None = Field(
        None, gt=0, description="Pause between two looks at what an ended job did; unset: only when it is asked"
    )
    reconcile_for_s: float = Field(86400.0, gt=0, description="How long after its birth a job is looked at by itself")
    listed_for_s: float = Field(
        2_592_000.0, gt=0, description="How long a sealed job stays in the lists; its id finds it for ever"
    )
    effects_found_for_s: float = Field(
        34_560_000.0,
        gt=0,
        description="How long an effect is found by external id, or time; by its job for ever",
    )
    streams: int = Field(400, ge=1, description="Event streams and waiting requests that are open at a time")
    streams_per_caller: int = Field(100, ge=1, description="The same, of one caller")
    keepalive_s: float = Field(15.0, gt=0, description="Pause after which a silent event stream sends a comment")

    @property
    def shown_in_lists_s(self) -> float:
        """How long a sealed job stays in the lists: by them it is looked at again, as long as a setting says so."""
        looked_at_s = self.reconcile_for_s if self.reconcile_every_s is not None else 0.0
        return max(self.listed_for_s, looked_at_s)

    @property
    def tokens_file(self) -> Path:
        """Where the bearer tokens are."""
        return self.tokens if self.tokens is not None else self.data / "tokens.toml"
