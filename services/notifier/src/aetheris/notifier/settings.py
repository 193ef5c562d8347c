"""The notifier's own settings; each is one environment variable, AETHERIS_<NAME>."""

from pathlib import Path

from pydantic import Field

from aetheris.runtime.process.settings import SubmitterSettings


class NotifierSettings(SubmitterSettings):
    """Whom it tells, and where its links lead; its token is of a tenant of its own."""

    notices: Path = Field(description="Who is told what, and how (TOML)")
    console_url: str | None = Field(None, description="Where people open a request, for links; unset: no links")
