"""What an answer other than yes looks like: {"error": {"code", "message", "details"}} (docs/http-api.md).

Problem
├── BadRequestProblem    400, names the field
├── UnauthorizedProblem  401
├── ForbiddenProblem     403, somebody else may do it
├── NotFoundProblem      404, also for what belongs to another tenant
├── ConflictProblem      409, what stands in the log contradicts the request
├── TooLarge             413, Kafka will not have it
├── TooMany              429, somebody has as much as he may have at a time
└── Unavailable          503, with the seconds after which to try again
    └── NotBegun         a job that is submitted, and has no events yet
"""

from typing import Any, ClassVar


class Problem(Exception):
    """An answer other than yes."""

    status: ClassVar[int] = 500

    def __init__(self, code: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details

    def body(self) -> dict[str, Any]:
        """The JSON that the client gets."""
        return {"error": {"code": self.code, "message": self.message, "details": self.details}}


class BadRequestProblem(Problem):
    """Bad input; nothing was appended."""

    status = 400

    def __init__(self, code: str, field: str, rule: str) -> None:
        super().__init__(code, f"{field}: {rule}", field=field, rule=rule)
        self.field = field


class UnauthorizedProblem(Problem):
    """No bearer token, or none that counts; `reason` is for the log, and says nothing of the token."""

    status = 401

    def __init__(self, reason: str = "unknown") -> None:
        super().__init__("unauthorized", "send a token that is known and has not ended: Authorization: Bearer …")
        self.reason = reason


class ForbiddenProblem(Problem):
    """Known, and not the one who may."""

    status = 403


class NotFoundProblem(Problem):
    """No such thing, or not this tenant's."""

    status = 404


class ConflictProblem(Problem):
    """What stands contradicts the request."""

    status = 409


class TooLarge(Problem):
    """A command that Kafka will not have as it is; nothing was appended."""

    status = 413

    def __init__(self) -> None:
        super().__init__("too_large", "this is larger than Kafka takes: send less, or raise the topic's limit")


class TooMany(Problem):
    """More than may be had at a time."""

    status = 429

    def __init__(self, limit: str, message: str, retry_after_s: int = 1) -> None:
        super().__init__("too_many", message, limit=limit, retry_after_s=retry_after_s)
        self.retry_after_s = retry_after_s


class Unavailable(Problem):
    """A part that is needed did not answer in time, or is being rebuilt."""

    status = 503

    def __init__(self, code: str, message: str, retry_after_s: int = 1) -> None:
        super().__init__(code, message, retry_after_s=retry_after_s)
        self.retry_after_s = retry_after_s


class NotBegun(Unavailable):
    """The job is known, its 202 was given; the planner has not taken it up yet."""

    def __init__(self) -> None:
        super().__init__("job_not_begun", "the job is submitted, and the planner has not taken it up yet: try again")
