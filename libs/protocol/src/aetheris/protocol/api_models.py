"""What every body and every answer of the HTTP API is made of, and what a job says of the jobs that it belongs to."""

from pydantic import BaseModel, ConfigDict


class RequestModel(BaseModel):
    """What a client sends."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ResponseModel(BaseModel):
    """What the gateway answers."""

    model_config = ConfigDict(extra="allow", frozen=True)


class BegunBy(ResponseModel):
    """The call of another job by which a job began; `replaces` it, or is `awaited_by` one that is told of its end."""

    job_id: str
    node_id: str
    replaces: bool = False
    awaited_by: str | None = None


class ChildJob(ResponseModel):
    """A job that a call has begun; `status`: how it has ended, as far as this one was told (of `detached` never)."""

    job_id: str
    node_id: str
    workflow: str
    detached: bool = False
    status: str | None = None
    continued_as: str | None = None
