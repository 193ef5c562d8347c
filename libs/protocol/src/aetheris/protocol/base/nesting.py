"""How deep JSON nests, before it is parsed: a parser that calls itself would else end by how deep its caller is."""

_OTHER = bytes(set(range(256)) - set(b"[]{}"))
_ONE_KIND = bytes.maketrans(b"[]{}", b"()()")


def nests_deeper(data: bytes, levels: int) -> bool:
    """Whether one JSON value nests deeper than so many levels; what is no JSON may seem to. Linear in its bytes."""
    if len(data) - len(data.replace(b"{", b"").replace(b"[", b"")) <= levels:  # `count` takes seven times as long
        return False
    outside = b"".join(data.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2])
    brackets = outside.translate(_ONE_KIND, _OTHER)
    for _ in range(levels):
        if not brackets:
            return False
        brackets = brackets.replace(b"()", b"")  # the innermost level of each part
    return bool(brackets)
