"""What a client would rather have: the header Prefer of RFC 7240 (docs/http-api.md)."""

import re
from collections.abc import Iterable
from urllib.request import parse_http_list

from aetheris.gateway.core.problems import BadRequestProblem

LONGEST_WAIT_S = 60
"""A longer wait is cut to this: whoever wants more asks again."""


def wait_s(headers: Iterable[str]) -> int | None:
    """The `wait` of the Prefer headers of a request, in seconds; None where there is none.

    As RFC 7240 has it the first one counts, and preferences that nobody knows are ignored.

    Raises:
        BadRequest: it is no number of whole seconds.
    """
    for preference in (one for header in headers for one in parse_http_list(header)):
        name, _, value = preference.partition(";")[0].partition("=")
        if name.strip().lower() == "wait":
            seconds = value.strip().strip('"')
            if not re.fullmatch(r"[0-9]{1,9}", seconds):
                raise BadRequestProblem("bad_request", "Prefer", "wait must be whole seconds, such as wait=30")
            return min(int(seconds), LONGEST_WAIT_S)
    return None
