"""Canonical JSON (RFC 8785) and its hash."""

import hashlib
from typing import Any

import rfc8785

ENCODE_ERRORS = (rfc8785.CanonicalizationError, UnicodeEncodeError, RecursionError)


def canonical(value: Any) -> bytes:
    """The JCS bytes of a JSON value.

    Raises:
        ValueError: it has no canonical form (an integer beyond ±(2^53−1), NaN, a lone surrogate).
    """
    try:
        return rfc8785.dumps(value)
    except ENCODE_ERRORS:
        raise ValueError("no canonical JSON form") from None


def json_hash(value: Any) -> str:
    """hex SHA-256(JCS(value)).

    Raises:
        ValueError: it has no canonical form.
    """
    return hashlib.sha256(canonical(value)).hexdigest()


def hash_or_empty(value: Any) -> str:
    """As `json_hash`, but empty for what has no canonical form: no recorded hash is equal to that."""
    try:
        return json_hash(value)
    except ValueError:
        return ""
