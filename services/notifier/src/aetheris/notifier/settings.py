"""The notifier's own settings; each is one environment variable, AETHERIS_<NAME>."""

from pathlib import Path

from pydantic import Field

from aetheris.runtime.process.settings import RuntimeSettings


class NotifierSettings(RuntimeSettings):
    """Whom it tells, by whose name, and where its links lead."""

    notices: Path = Field(description="Who is told what, and how (TOML)")
    gateway_url: str = Field("http://127.0.0.1:8080", description="The gateway's HTTP address, for notices")
    gateway_token: Path = Field(description="File with the token of a service of a tenant of its own that may submit")
    ca: Path | None = Field(None, description="CA of the gateway (PEM), where that is called by https")
    console_url: str | None = Field(None, description="Where people open a request, for links; unset: no links")

    @property
    def credential_files(self) -> tuple[Path, ...]:
        """With the token."""
        return (*super().credential_files, self.gateway_token)
