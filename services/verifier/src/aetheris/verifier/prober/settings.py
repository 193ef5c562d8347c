"""The prober's own settings; each is one environment variable, AETHERIS_<NAME>."""

from pathlib import Path

from pydantic import Field

from aetheris.runtime.process.settings import SigningSettings, ToolSettings


class ProberSettings(ToolSettings, SigningSettings):
    """How long a probe may take, and what of it is told."""

    probe_timeout_s: float = Field(10.0, gt=0, description="Time that a tool's probe has to answer")
    probes_at_once: int = Field(16, ge=1, description="Probes that run at the same time")
    secrets: Path | None = Field(None, description="Secrets of tools (TOML), kept out of what probes and verifiers say")
    tool_output: bool = Field(
        default=True, description="What probes and verifiers print, log and raise goes into the log, without secrets"
    )
