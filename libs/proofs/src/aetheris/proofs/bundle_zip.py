"""The zip around an envelope: one entry, and not a byte that its own bytes don't determine (docs/evidence.md)."""

import struct
import zlib

from aetheris.proofs.evidence import BadEvidence

ENVELOPE = "bundle.dsse.json"
MAX_BYTES = 256 * 1024 * 1024
"""What an envelope may have, unpacked."""
MAX_RATIO = 100
"""How many bytes may come of a packed one: what would be packed tighter is stored as it is."""

_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_NAME = ENVELOPE.encode()
_STORED, _DEFLATED = 0, 8
_LEVEL = 6
_VERSION, _UNIX = 20, 3 << 8
_DATE = 33  # 1980-01-01, the first there is
_MODE = 0o100644 << 16
_METHOD_AT, _SIZES_AT = 8, 14
_AROUND = _LOCAL.size + _CENTRAL.size + _END.size + 2 * len(_NAME)


def pack(envelope: bytes) -> bytes:
    """The zip around an envelope; the same one gives the same bytes.

    Raises:
        BadEvidence: it is too large.
    """
    if len(envelope) > MAX_BYTES:
        raise BadEvidence("too_large", f"a bundle has at most {MAX_BYTES} bytes; export the stream")
    deflater = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    packed, method = deflater.compress(envelope) + deflater.flush(), _DEFLATED
    if len(envelope) > MAX_RATIO * len(packed):
        packed, method = envelope, _STORED
    return _around(packed, method, zlib.crc32(envelope), len(envelope))


def unpack(data: bytes) -> bytes:
    """The envelope in a zip that may come from anybody.

    Only what `pack` could have written is taken, so nothing can lie before, between or behind. Nothing is unpacked
    before that is known, and then no more than the zip says.

    Raises:
        BadEvidence: bad_zip.
    """
    if len(data) < _AROUND:
        raise BadEvidence("bad_zip", "not a zip with a bundle")
    (method,) = struct.unpack_from("<H", data, _METHOD_AT)
    crc, packed_size, size = struct.unpack_from("<3I", data, _SIZES_AT)
    begin = _LOCAL.size + len(_NAME)
    packed = data[begin : begin + packed_size]
    if method not in (_STORED, _DEFLATED) or data != _around(packed, method, crc, size):
        raise BadEvidence("bad_zip", f"not just {ENVELOPE} in the one form that a bundle has")
    if size > min(MAX_BYTES, MAX_RATIO * packed_size):
        raise BadEvidence("bad_zip", f"{ENVELOPE} is too large")
    envelope = packed if method == _STORED else _inflated(packed, size)
    if len(envelope) != size or zlib.crc32(envelope) != crc:
        raise BadEvidence("bad_zip", f"{ENVELOPE} is not what the zip says")
    return envelope


def _around(packed: bytes, method: int, crc: int, size: int) -> bytes:
    told = method, 0, _DATE, crc, len(packed), size, len(_NAME), 0
    local = _LOCAL.pack(b"PK\3\4", _VERSION, 0, *told) + _NAME + packed
    central = _CENTRAL.pack(b"PK\1\2", _UNIX + _VERSION, _VERSION, 0, *told, 0, 0, 0, _MODE, 0) + _NAME
    return local + central + _END.pack(b"PK\5\6", 0, 0, 1, 1, len(central), len(local), 0)


def _inflated(packed: bytes, size: int) -> bytes:
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        envelope = inflater.decompress(packed, size + 1)
    except zlib.error:
        raise BadEvidence("bad_zip", f"{ENVELOPE} can't be unpacked") from None
    if not inflater.eof or inflater.unused_data:
        raise BadEvidence("bad_zip", f"{ENVELOPE} is larger than the zip says, or something lies behind it")
    return envelope
