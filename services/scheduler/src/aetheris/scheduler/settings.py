"""The scheduler's own settings; each is one environment variable, AETHERIS_<NAME>."""

from pathlib import Path

from pydantic import Field

from aetheris.runtime.process.settings import HttpSettings, SubmitterSettings


class SchedulerSettings(SubmitterSettings, HttpSettings):
    """What starts jobs; whose they are, its token says."""

    starts: Path = Field(description="What starts jobs, and when (TOML)")
