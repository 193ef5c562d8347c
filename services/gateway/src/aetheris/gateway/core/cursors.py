"""Cursors of lists: a place in one tenant's list, that means nothing to any other list.

They are no secret and no permission: who makes one up gets another place in a list of his own, since whose list it is
comes from who asks. One that was changed on its way is refused.
"""

import base64
import binascii
import hashlib
import re

from aetheris.gateway.core.problems import BadRequestProblem

_TAG_BYTES = 8
_MAX_CHARS = 1024


def cursor_at(place: str, tenant: str, subject: str) -> str:
    """The cursor that leads on behind `place` in a tenant's list; `subject` names the list, and what is asked of it."""
    said = place.encode()
    return _encoded(_tag(tenant, subject, said) + said)


def place_at(cursor: str, tenant: str, subject: str) -> str:
    """The place that a cursor of this list leads on from.

    Raises:
        BadRequest: it is none, or another list's, or another tenant's.
    """
    found = _decoded(cursor)
    tag, said = found[:_TAG_BYTES], found[_TAG_BYTES:]
    if tag != _tag(tenant, subject, said) or _encoded(found) != cursor:
        raise _none_of_this_list()
    return said.decode(errors="replace")


def number_at(cursor: str, tenant: str, subject: str) -> int:
    """As `place_at`, of a list whose places are numbers.

    Raises:
        BadRequest.
    """
    place = place_at(cursor, tenant, subject)
    if not re.fullmatch(r"[0-9]{1,19}", place):
        raise _none_of_this_list()
    return int(place)


def of_tenant(tenant: str) -> str:
    """A tenant as part of a key, whatever its name holds: nothing behind it can be taken for a part of it."""
    return f"{len(tenant.encode())}:{tenant}"


def _none_of_this_list() -> BadRequestProblem:
    rule = "is none that this list gave: take `cursor` of its last page"
    return BadRequestProblem("bad_request", "cursor", rule)


def _tag(tenant: str, subject: str, place: bytes) -> bytes:
    parts = (part.encode(errors="surrogatepass") for part in (tenant, subject))
    return hashlib.sha256(b"".join(b"%d:%b" % (len(part), part) for part in (*parts, place))).digest()[:_TAG_BYTES]


def _encoded(found: bytes) -> str:
    return base64.urlsafe_b64encode(found).decode().rstrip("=")


def _decoded(cursor: str) -> bytes:
    if not cursor.isascii() or len(cursor) > _MAX_CHARS:
        return b""
    try:
        return base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except binascii.Error:
        return b""
