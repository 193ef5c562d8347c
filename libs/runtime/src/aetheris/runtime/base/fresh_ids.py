"""Fresh ids: the only randomness of the services."""

import os
import secrets
import time
import uuid

from aetheris.protocol.base.words import SECRET_BYTES

_VERSION_7 = 0x7 << 76
_VARIANT = 0b10 << 62
_RANDOM_A = (1 << 12) - 1
_RANDOM_B = (1 << 62) - 1


def fresh_id() -> str:
    """A UUIDv7 (RFC 9562): sorts by the millisecond of its making."""
    millis = time.time_ns() // 1_000_000
    noise = int.from_bytes(os.urandom(10), "big")
    random_a, random_b = (noise >> 62) & _RANDOM_A, noise & _RANDOM_B
    return str(uuid.UUID(int=(millis << 80) | _VERSION_7 | (random_a << 64) | _VARIANT | random_b))


def fresh_salt() -> str:
    """What keeps the hash of a seal from being guessed: 128 random bits, hex."""
    return secrets.token_hex(16)


def fresh_secret() -> bytes:
    """What a try's words begin with (docs/adr/0009-signed-records.md): 256 random bits, kept in memory only."""
    return secrets.token_bytes(SECRET_BYTES)
