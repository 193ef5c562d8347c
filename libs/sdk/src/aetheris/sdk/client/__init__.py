"""A client of the gateway's API, for programs that wait (`Client`) and for those that don't (`AsyncClient`).

ApiError                an answer other than yes: `code`, `message`, `details`
├── BadRequest          400; `field` names what is wrong
├── Unauthorized        401
├── Forbidden           403, somebody else may do it
├── NotFound            404, also for what belongs to another tenant
├── Conflict            409, what stands contradicts the request
├── TooManyRequests     429, beyond a limit; `retry_after_s` says when to come again
└── Unreachable         no connection, or 503; `retry_after_s` where the gateway says so
"""

from aetheris.protocol.api import (
    Action,
    Approval,
    ApprovalPage,
    CallerView,
    Commanded,
    Contract,
    HumanRequest,
    Job,
    JobEvent,
    JobPage,
    JobSummary,
    PauseInForce,
    Reconciled,
    Responded,
    StepView,
    Submitted,
    Verdict,
)
from aetheris.sdk.client.asynchronous import AsyncClient
from aetheris.sdk.client.blocking import Client
from aetheris.sdk.client.calls import Goal, Level
from aetheris.sdk.client.errors import (
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    ResourceNotFound,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from aetheris.sdk.client.event_walk import ENDS

__all__ = [
    "ENDS",
    "Action",
    "ApiError",
    "Approval",
    "ApprovalPage",
    "AsyncClient",
    "BadRequest",
    "CallerView",
    "Client",
    "Commanded",
    "Conflict",
    "Contract",
    "Forbidden",
    "Goal",
    "HumanRequest",
    "Job",
    "JobEvent",
    "JobPage",
    "JobSummary",
    "Level",
    "PauseInForce",
    "Reconciled",
    "ResourceNotFound",
    "Responded",
    "StepView",
    "Submitted",
    "TooManyRequests",
    "Unauthorized",
    "Unreachable",
    "Verdict",
]
