"""An exported stream: a line of metadata, then a line for each record, exact bytes in base64 (docs/cli.md).

{"format": "aetheris-stream", "version": 1, "job_id": …, "public_keys": [PEM, …], "records": N}
{"offset": …, "key": base64 or null, "headers": [[name, base64], …], "value": base64}
"""

import base64
import binascii
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from aetheris.cli.console import CommandError, Exit
from aetheris.cli.inputs import json_object, read_bytes
from aetheris.proofs import RawRecord

FORMAT = "aetheris-stream"
VERSION = 1


@dataclass(frozen=True)
class Stream:
    """A job's raw records and the keys whose seals they are said to carry."""

    job_id: str
    public_keys: tuple[str, ...]
    records: tuple[Mapping[str, Any], ...]
    announced: int
    """How many records its first line says there are."""

    def raw(self) -> Iterator[RawRecord]:
        """The records as the proofs take them.

        Raises:
            CommandError: naming the line.
        """
        for number, record in enumerate(self.records, start=2):
            yield _raw(record, number)

    def lines(self) -> Iterator[str]:
        """As a file has it."""
        head = {"format": FORMAT, "version": VERSION, "job_id": self.job_id, "public_keys": self.public_keys}
        yield json.dumps({**head, "records": self.announced})
        for record in self.records:
            yield json.dumps(record)


def of_evidence(evidence: Mapping[str, Any]) -> Stream:
    """What the gateway answers: {job_id, public_keys, records}."""
    records = tuple(evidence["records"])
    return Stream(str(evidence["job_id"]), tuple(evidence["public_keys"]), records, len(records))


def read(path: Path) -> Stream:
    """A file.

    Raises:
        CommandError: it can't be read, or isn't an exported stream; names the line.
    """
    lines = read_bytes(path).splitlines()
    if not lines:
        raise _malformed(1, "the file is empty")
    head, *records = (json_object(line, f"line {number}") for number, line in enumerate(lines, start=1))
    if head.get("format") != FORMAT or head.get("version") != VERSION:
        raise _malformed(1, f"this is no {FORMAT} of version {VERSION}")
    job_id, keys, announced = head.get("job_id"), head.get("public_keys"), head.get("records")
    if not isinstance(job_id, str) or not isinstance(keys, list) or not isinstance(announced, int):
        raise _malformed(1, "lacks job_id, public_keys or records")
    return Stream(job_id, tuple(str(key) for key in cast("list[Any]", keys)), tuple(records), announced)


def public_keys(pems: Sequence[str | bytes]) -> list[Ed25519PublicKey]:
    """The keys of PEM texts.

    Raises:
        CommandError: one of them is no Ed25519 public key.
    """
    return [_public_key(pem if isinstance(pem, bytes) else pem.encode()) for pem in pems]


def _public_key(pem: bytes) -> Ed25519PublicKey:
    try:
        key = load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise CommandError(Exit.BAD_INPUT, "bad_public_key", "not an Ed25519 public key in PEM")
    return key


def _raw(record: Mapping[str, Any], line: int) -> RawRecord:
    try:
        key = record["key"]
        headers = tuple((str(name), _bytes(value)) for name, value in record["headers"])
        return RawRecord(_offset(record), None if key is None else _bytes(key), headers, _bytes(record["value"]))
    except (KeyError, TypeError, ValueError, binascii.Error):
        raise _malformed(line, "not a record with offset, key, headers and value") from None


def _offset(record: Mapping[str, Any]) -> int:
    offset = record["offset"]
    if not isinstance(offset, int):
        raise TypeError
    return offset


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _malformed(line: int, rule: str) -> CommandError:
    return CommandError(Exit.BAD_INPUT, "malformed_stream", f"line {line}: {rule}", line=line)
