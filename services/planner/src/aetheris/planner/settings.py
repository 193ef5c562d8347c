"""The planner's own settings; each is one environment variable, AETHERIS_<NAME>."""

from pydantic import Field

from aetheris.planner.core.backlog import JOBS_IN_FLIGHT
from aetheris.planner.core.watch import STUCK_AFTER_S
from aetheris.runtime.process.settings import SigningSettings
from aetheris.runtime.worker.checkpointer import EVERY


class PlannerSettings(SigningSettings):
    """How the planner asks."""

    stuck_after_s: float = Field(
        STUCK_AFTER_S, gt=0, description="Silence after which a job that should go on is stuck"
    )
    jobs_in_flight: int = Field(
        JOBS_IN_FLIGHT, ge=1, description="Jobs at work in a partition, beyond which submissions wait in Kafka"
    )
    checkpoint_every: int = Field(
        EVERY, ge=1, description="Records of a partition after which a job that was there before gets a checkpoint"
    )
    runs: bool = Field(default=True, description="Ask for chains of nodes at once, where they follow each other")
