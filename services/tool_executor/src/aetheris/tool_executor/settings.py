"""The executor's own settings; each is one environment variable, AETHERIS_<NAME>."""

from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic.functional_validators import BeforeValidator
from pydantic_settings import NoDecode

from aetheris.protocol.base.ids import NAME
from aetheris.protocol.messages.registry_lines import DEFAULT_POOL
from aetheris.runtime.process.settings import SubjectSettings, ToolSettings, split


class ExecutorSettings(ToolSettings, SubjectSettings):
    """How many tools run at once, and how long what is around them may take."""

    secrets: Path | None = Field(None, description="Secrets of tools, and who may use them (TOML); unset: none")
    mcp: Path | None = Field(None, description="MCP servers whose tools may be called (JSON); unset: none")
    shell_programs: Annotated[tuple[Path, ...], NoDecode, BeforeValidator(split)] = Field(
        (), description="Programs that tools may run, by absolute path, comma-separated; unset: none"
    )
    pool: str = Field(
        DEFAULT_POOL,
        pattern=f"^{NAME.pattern}$",
        description="Which executors this is one of: they serve the same tools, and share their calls",
    )
    running_tools: int = Field(128, ge=1, description="Grants at work at once in one executor; others wait")
    effect_deadline_s: float = Field(0.25, gt=0, description="Time for a write to the effect store; then go on")
    effect_pause_s: float = Field(1.0, ge=0, description="Time that a failed effect store is left alone")
    models: Annotated[tuple[str, ...], NoDecode, BeforeValidator(split)] = Field(
        (), description="Models that jobs may name: provider:model, or files of [[models]] (.toml); comma-separated"
    )
    stuck_threads: int = Field(
        64, ge=1, description="Threads of tools that timed out and still run; beyond, no blocking tool is called"
    )
    tool_output: bool = Field(
        default=True, description="What tools print, log and raise goes into the executor's log, without secrets"
    )
    lease_patience_s: float = Field(
        60.0, gt=0, description="A lease is renewed no longer: after its call's time, or once appends or the loop stand"
    )
    workflow_idle_s: float = Field(
        30.0,
        gt=0,
        description="A workflow that waits for longer leaves memory, and is begun anew when it can go on",
    )
    tool_drain_s: float = Field(10.0, gt=0, description="Time that running tools have when the executor stops")
