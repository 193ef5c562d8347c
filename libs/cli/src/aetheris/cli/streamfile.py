"""An exported stream: a line of metadata, then a line for each record, exact bytes in base64 (docs/cli.md).

{"format": "aetheris-stream", "version": 1, "job_id": …, "keys": [{"key_id": …, "public_key": PEM}, …], "records": N}
{"offset": …, "key": base64 or null, "headers": [[name, base64], …], "value": base64}
"""

import base64
import binascii
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from aetheris.cli.console import CommandError, Exit
from aetheris.cli.inputs import json_object, read_bytes
from aetheris.proofs import RawRecord
from aetheris.proofs.trust import BadKeys, TrustedKey, keys_of, read_keys

FORMAT = "aetheris-stream"
VERSION = 1


@dataclass(frozen=True)
class Stream:
    """A job's raw records and the keys whose seals they are said to carry."""

    job_id: str
    keys: tuple[TrustedKey, ...]
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
        keys = [key.to_json() for key in self.keys]
        head = {"format": FORMAT, "version": VERSION, "job_id": self.job_id, "keys": keys}
        yield json.dumps({**head, "records": self.announced})
        for record in self.records:
            yield json.dumps(record)


def of_answer(evidence: Mapping[str, Any]) -> Stream:
    """What the gateway answers: {job_id, keys, records}."""
    records = tuple(evidence["records"])
    return Stream(str(evidence["job_id"]), _keys(evidence["keys"]), records, len(records))


def read(path: Path) -> Stream:
    """A file.

    Raises:
        CommandError: it can't be read, or isn't an exported stream; names the line.
    """
    return parse(read_bytes(path))


def parse(content: bytes) -> Stream:
    """A file's content.

    Raises:
        CommandError: it isn't an exported stream; names the line.
    """
    lines = content.splitlines()
    if not lines:
        raise _malformed(1, "the file is empty")
    head, *records = (json_object(line, f"line {number}") for number, line in enumerate(lines, start=1))
    if head.get("format") != FORMAT or head.get("version") != VERSION:
        raise _malformed(1, f"this is no {FORMAT} of version {VERSION}")
    job_id, keys, announced = head.get("job_id"), head.get("keys"), head.get("records")
    if not isinstance(job_id, str) or not isinstance(keys, list) or not isinstance(announced, int):
        raise _malformed(1, "lacks job_id, keys or records")
    return Stream(job_id, _keys(cast("list[Any]", keys)), tuple(records), announced)


def read_trusted(paths: Sequence[Path]) -> list[TrustedKey]:
    """The keys of files: public keys in PEM, or files of keys (docs/evidence.md).

    Raises:
        CommandError: one of them can't be used.
    """
    found: list[TrustedKey] = []
    for path in paths:
        try:
            found += read_keys(read_bytes(path))
        except BadKeys as error:
            raise CommandError(Exit.BAD_INPUT, error.code, f"{path}: {error}", file=str(path)) from None
    return found


def _keys(entries: Sequence[Any]) -> tuple[TrustedKey, ...]:
    try:
        return tuple(keys_of(entries))
    except BadKeys as error:
        raise CommandError(Exit.BAD_INPUT, error.code, f"line 1: {error}", line=1) from None


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
