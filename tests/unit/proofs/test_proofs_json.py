"""The proofs and verify.py read one JSON alike, though each with a parser of its own."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aetheris.proofs import RawRecord
from aetheris.proofs.records import body_of, read
from tests.testkit import standalone

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["\ud800", "😀", "\x7f"])
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)
PIECES = st.sampled_from(
    [
        *'{}[]":,.-01\\ \t\n\x00\x0b\ufeff\u2028',
        "e5",
        "e999",
        "null",
        "NaN",
        "Infinity",
        '"a":1',
        ',"a":2',
        "\\ud800",
        "\\u0061",
    ]
)


def _ours(value: bytes) -> str:
    fact, broken = read(RawRecord(0, None, (), value), 0)
    return "undecodable" if any(one.rule == "undecodable" for one in broken) else repr(fact.body)


def _scripts(value: bytes) -> str:
    try:
        return repr(standalone.verify.parse_record(value))
    except standalone.verify.Bad:
        return "undecodable"


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.text(), VALUES), st.booleans())
def test_what_is_json_reads_alike(body: dict[str, Any], ascii_only: bool) -> None:
    value = json.dumps(body, ensure_ascii=ascii_only).encode(errors="surrogatepass")
    assert _ours(value) == _scripts(value)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.text(), VALUES), st.lists(st.tuples(st.integers(0, 200), PIECES), max_size=4))
def test_what_is_broken_reads_alike(body: dict[str, Any], strewn: list[tuple[int, str]]) -> None:
    text = json.dumps(body)
    for at, piece in strewn:
        text = text[:at] + piece + text[at:]
    value = text.encode()
    assert _ours(value) == _scripts(value)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xef\xbb\xbf{}",
        b' {"a":1}\n',
        b'{"a":1}x',
        b'{"a":1,"a":1}',
        b'{"a":{"b":1,"\\u0062":2}}',
        b'{"a":"\\ud800"}',
        b'{"a":"\\ud83d\\ude00"}',
        b'{"a":"\xed\xa0\x80"}',
        b'{"a":"\xff"}',
        b'{"a":"\x01"}',
        b'{"a":NaN}',
        b'{"a":-Infinity}',
        b'{"a":1e999}',
        b'{"a":-0}',
        b'{"a":-0.0}',
        b'{"a":01}',
        b'{"a":1.}',
        b'{"a":5e-324,"b":2.2250738585072011e-308,"c":9007199254740993.0,"d":0.1e-400}',
        b'{"a":' + b"7" * 400 + b"}",
        b'{"a":' + b"7" * 5000 + b"}",
        b'{"a":' + b"[" * 500 + b"]" * 500 + b"}",
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b"[1]",
        b"1",
    ],
)
def test_what_parsers_differ_in_reads_alike(value: bytes) -> None:
    assert _ours(value) == _scripts(value)


def test_what_bodies_have_in_common_is_held_once() -> None:
    said = {"plan": {"nodes": [], "tools": {"look": {"version": "1"}}}, "certificate": {"service": "planner"}}
    first, second = (body_of(json.dumps(said, separators=(",", ":")).encode()) for _ in range(2))
    assert first == second == said
    assert first is not None
    assert second is not None
    assert first["plan"]["tools"] is second["plan"]["tools"]
    assert first["certificate"] is second["certificate"]
    assert body_of(b'{"plan":3,"task_graph":{"tools":[]},"certificate":null}') == {
        "plan": 3,
        "task_graph": {"tools": []},
        "certificate": None,
    }
