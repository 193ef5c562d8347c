"""The planner's own settings; each is one environment variable, AETHERIS_<NAME>."""

from pydantic import Field

from aetheris.streams.settings import RuntimeSettings


class PlannerSettings(RuntimeSettings):
    """How the planner asks."""

    runs: bool = Field(default=True, description="Ask for chains of nodes at once, where they follow each other")
