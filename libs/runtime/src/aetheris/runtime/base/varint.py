"""Whole numbers in as few bytes as they need, as protobuf has them."""


def varint(number: int) -> bytes:
    """Seven bits a byte, the lowest first; the last has its highest bit clear."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)
