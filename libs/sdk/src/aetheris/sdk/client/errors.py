"""What the gateway says instead of yes.

ApiError                an answer other than yes: `code`, `message`, `details`
├── BadRequest          400; `field` names what is wrong
├── Unauthorized        401
├── Forbidden           403, somebody else may do it
├── ResourceNotFound    404, also for what belongs to another tenant
├── Conflict            409, what stands contradicts the request
├── TooManyRequests     429, more than may be had at a time
└── Unreachable         no connection, or 503; `retry_after_s` where the gateway says so
"""

from collections.abc import Mapping
from typing import Any, cast

import httpx


class ApiError(Exception):
    """The gateway said no."""

    def __init__(self, code: str, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details: Mapping[str, Any] = details or {}

    @property
    def field(self) -> str | None:
        """The field of the request that is wrong, such as `plan.nodes[0].args/amount`."""
        return self.details.get("field")


class BadRequest(ApiError):
    """Bad input; nothing was done."""


class Unauthorized(ApiError):
    """No token, or none that the gateway knows."""


class Forbidden(ApiError):
    """Known, and not the one who may: such as who submitted a job, asked to approve it."""


class ResourceNotFound(ApiError):
    """No such job, contract or route."""


class Conflict(ApiError):
    """What stands contradicts the request."""


class TooManyRequests(ApiError):
    """More than may be had at a time; nothing was done."""

    @property
    def retry_after_s(self) -> int | None:
        """When to try again, in seconds."""
        return self.details.get("retry_after_s")


class Unreachable(ApiError):
    """Nobody answered, or a part that is needed is down: what was asked may or may not have been taken."""

    @property
    def retry_after_s(self) -> int | None:
        """When to try again, in seconds."""
        return self.details.get("retry_after_s")


_ERRORS: Mapping[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: ResourceNotFound,
    409: Conflict,
    429: TooManyRequests,
    503: Unreachable,
}


def checked(answer: httpx.Response) -> Any:
    """The answer's JSON.

    Raises:
        ApiError: for every status from 400 on, and for what is no JSON.
    """
    try:
        body = answer.json()
    except ValueError:
        raise ApiError("bad_answer", f"HTTP {answer.status_code} without JSON: is this a gateway?") from None
    if answer.status_code < 400:
        return body
    fields: dict[str, Any] = cast("dict[str, Any]", body).get("error", {}) if isinstance(body, dict) else {}
    kind = _ERRORS.get(answer.status_code, ApiError)
    message = fields.get("message", f"HTTP {answer.status_code}")
    raise kind(fields.get("code", "http_error"), message, fields.get("details"))


def good(answer: httpx.Response) -> httpx.Response:
    """An answer whose body is no JSON.

    Raises:
        ApiError: as `checked`.
    """
    if answer.status_code >= 400:
        checked(answer)
    return answer


def unreachable(error: Exception) -> Unreachable:
    """Nobody answers."""
    return Unreachable("unreachable", f"the gateway does not answer ({type(error).__name__})")
