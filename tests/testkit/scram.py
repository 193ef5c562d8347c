"""A user who logs in by SCRAM, made as Kafka's own tools make one (AlterUserScramCredentials, version 0)."""

import hashlib
import os
import struct

from aetheris.runtime.kafka.connection import connect
from aetheris.runtime.kafka.wire import Api

_ALTER = Api(51, 0)
_KINDS = {"SCRAM-SHA-256": (1, "sha256"), "SCRAM-SHA-512": (2, "sha512")}
_ITERATIONS = 4096
_NO_TAGS = b"\0"


async def add_scram_user(server: str, user: str, password: str) -> None:
    """For each of the mechanisms; `server` is host:port of a broker at which whoever asks may do anything."""
    host, _, port = server.rpartition(":")
    connection = await connect((host, int(port)), None)
    try:
        for kind in _KINDS.values():  # brokers take one of a user in a request
            body = _NO_TAGS + b"\x01\x02" + _upsertion(user, password, *kind) + _NO_TAGS  # none deleted, one added
            answer = await connection.call(_ALTER, body)
            (code,) = struct.unpack_from(">h", answer, 7 + len(user))
            assert code == 0, answer
    finally:
        connection.close()


def _upsertion(user: str, password: str, number: int, digest: str) -> bytes:
    salt = os.urandom(16)
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, _ITERATIONS)
    return (
        _compact(user.encode()) + struct.pack(">bi", number, _ITERATIONS) + _compact(salt) + _compact(salted) + _NO_TAGS
    )


def _compact(raw: bytes) -> bytes:
    return bytes([len(raw) + 1]) + raw
