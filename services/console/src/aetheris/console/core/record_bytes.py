"""A record as it lies in the log, for people: its bytes as hex beside their text, its headers."""

import base64
import binascii
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

MOST_SHOWN = 4_096
"""Bytes; the rest is in the file."""
_ROW = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownBytes:
    """`dump`: offset, hex and text, a line for each 16 bytes of the value."""

    key: str
    headers: Sequence[tuple[str, str]]
    size: int
    dump: str
    is_cut: bool


def shown_bytes(key: str | None, headers: Sequence[tuple[str, str]], value_base64: str) -> ShownBytes:
    """A record as a page shows it, of what the API says in base64; raises ValueError: it is none."""
    value = bytes_of(value_base64)
    return ShownBytes(
        key=_text(bytes_of(key)) if key is not None else "(none)",
        headers=[(name, _text(bytes_of(text))) for name, text in headers],
        size=len(value),
        dump="\n".join(_dump(value[:MOST_SHOWN])),
        is_cut=len(value) > MOST_SHOWN,
    )


def bytes_of(text: str) -> bytes:
    """What base64 says; raises ValueError."""
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError("is no base64") from None


def _text(data: bytes) -> str:
    """As text where it is some, else as hex."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "0x" + data.hex()


def _dump(data: bytes) -> Iterator[str]:
    for at in range(0, len(data), _ROW):
        row = data[at : at + _ROW]
        text = "".join(chr(one) if 0x20 <= one < 0x7F else "." for one in row)
        yield f"{at:06x}  {row[:8].hex(' '):<23}  {row[8:].hex(' '):<23}  {text}"
