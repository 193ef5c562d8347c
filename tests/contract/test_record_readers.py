"""One list of records, and everybody who reads records: services, proofs, both scripts."""

import base64
import importlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aetheris.proofs import RawRecord
from aetheris.proofs.records import nests_deeper as by_proofs_deeper
from aetheris.proofs.records import read
from aetheris.protocol.base.nesting import nests_deeper
from aetheris.protocol.base.recordable import MAX_DEPTH, MAX_RECORD_DEPTH, is_deep, result
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.envelope import Envelope, Undecodable, decode_event
from tests.testkit import standalone

CHECK: Any = importlib.import_module("aetheris_check.check_bundle")
DEEPER: dict[str, Callable[[bytes, int], bool]] = {
    "services": nests_deeper,
    "proofs": by_proofs_deeper,
    "verify.py": standalone.verify.nests_deeper,
}
TEXTS = st.text(st.sampled_from('[]{}"\\\\/, aé'), max_size=6)
NESTED = st.recursive(
    st.integers() | TEXTS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3)
)
HEADERS = (("ce_id", b"1"), ("ce_type", b"io.aetheris.signal_received.v1"))

SIG = b',"sig":{"key":"' + b"a" * 64 + b'","value":"' + b"A" * 86 + b'=="}'


def of(value: bytes, around: bytes = b'"correlation_key":"k"') -> bytes:
    """A signal with that payload."""
    return b'{"job_id":"j",' + around + b',"payload":' + value + b"}"


def lists(levels: int, within: bytes = b"") -> bytes:
    return b"[" * levels + within + b"]" * levels


def objects(levels: int) -> bytes:
    return b'{"a":' * levels + b"1" + b"}" * levels


READABLE = {
    "plain": of(b"{}"),
    "a value as deep as values are recorded": of(lists(MAX_DEPTH)),
    "lists as deep as a record may be": of(lists(MAX_RECORD_DEPTH - 1)),
    "objects as deep as a record may be": of(objects(MAX_RECORD_DEPTH - 1)),
    "many, side by side": of(b"[" + b"[{}]," * 5_000 + b"{}]"),
    "brackets in a text": of(b'"' + b"[{" * 500 + b'"'),
    "brackets in a text behind quotes": of(b'"' + rb"\"[\\\"{" * 500 + b'"'),
    "brackets in a name": of(b'{"' + b"[" * 500 + b'":1}'),
    "a text that ends with a backslash, before as many as may be": of(rb'["\\",' + lists(MAX_RECORD_DEPTH - 2) + b"]"),
    "a pair of surrogates": of(rb'"\ud83d\ude00"'),
    "what looks like a surrogate": of(rb'"\\ud800"'),
    "U+0000": of(rb'"\u0000"'),
    "a number of 4,300 digits": of(b"7" * 4_300),
    "a fraction behind 4,300 digits": of(b"7" * 4_300 + b".5"),
    "a fraction of 5,000 digits": of(b"0." + b"7" * 5_000),
    "a number beyond floats": of(b"1e999"),
    "the least float": of(b"5e-324"),
    "a name again, elsewhere": of(b'{"a":{"a":[{"a":1},{"a":1}]},"b":{"a":1},"job_id":1}'),
    "what looks like a name twice": of(rb'{"a":"\"a\":1,","b":"a"}'),
    "a name that differs by what is combined": of('{"\u00e9":1,"e\u0301":1}'.encode()),
    "signed": of(b"1")[:-1] + SIG + b"}",
    "signed, with a certificate": of(b"1")[:-1] + b',"certificate":{"a":"1","b":"1"}' + SIG + b"}",
    "signed, with something else": of(b"1")[:-1] + b',"x":{"a":"1","b":"1"}' + SIG + b"}",
    "NaN in a text": of(b'"NaN"'),
    "white space around": b" \t\r\n" + of(b"1") + b"\n",
}
UNREADABLE = {
    "lists one level deeper": of(lists(MAX_RECORD_DEPTH)),
    "objects one level deeper": of(objects(MAX_RECORD_DEPTH)),
    "lists and objects one level deeper": of(lists(MAX_RECORD_DEPTH - 1, b"{}")),
    "one level deeper behind a text that ends with a backslash": of(rb'["\\",' + lists(MAX_RECORD_DEPTH - 1) + b"]"),
    "one level deeper between texts": of(b'["[",' + lists(MAX_RECORD_DEPTH - 1) + b',"]"]'),
    "190 levels": of(lists(190)),
    "250 levels": of(lists(250)),
    "900 levels": of(objects(900)),
    "100,000 levels": of(lists(100_000)),
    "brackets without end": of(b"[" * 100_000),
    "quotes without end": of(b'"' + rb"\"" * 100_000),
    "a lone surrogate": of(rb'"\ud800"'),
    "a lone surrogate that closes": of(rb'"\udc00"'),
    "a pair the wrong way round": of(rb'"\ude00\ud83d"'),
    "two that open": of(rb'"\ud83d\ud83d"'),
    "a lone surrogate in a name": of(rb'{"\ud800":1}'),
    "a lone surrogate in the record's own": of(b"1", rb'"correlation_key":"\ud800"'),
    "a lone surrogate in a field that nobody knows": of(b"1", rb'"correlation_key":"k","x":["\uDfFf"]'),
    "a lone surrogate in bytes": of(b'"\xed\xa0\x80"'),
    "no UTF-8": of(b'"\xff"'),
    "a mark of byte order": b"\xef\xbb\xbf" + of(b"1"),
    "a control character": of(b'"\x01"'),
    "a number of 4,301 digits": of(b"7" * 4_301),
    "a fraction behind 4,301 digits": of(b"-" + b"7" * 4_301 + b".5"),
    "an exponent behind 4,301 digits": of(b"7" * 4_301 + b"e1"),
    "a number that begins with 0": of(b"01"),
    "a fraction of no digits": of(b"1."),
    "a name without quotes": of(b"{a:1}"),
    "a name between other quotes": of(b"{'a':1}"),
    "a number for a name": of(b"{1:1}"),
    "null for a name": of(b"{null:1}"),
    "no name": of(b"{:1}"),
    "a name alone": of(b'{"a"}'),
    "a comma too much": of(b'{"a":1,}'),
    "something behind": of(b"1") + b"x",
    "a name twice": of(b'{"a":1,"a":1}'),
    "a name twice, once escaped": of(rb'{"a":1,"\u0061":2}'),
    "a name twice, far in": of(b'[[{"b":[{"a":{},"c":0,"a":null}]}]]'),
    "a name twice, as often as it would be without": of(b'{"a":1.50,"a":1}'),
    "a field twice": of(b"1", b'"correlation_key":"k","correlation_key":"k"'),
    "a field twice, once null": of(b"1", b'"caused_by":null,"correlation_key":"k","caused_by":"c"'),
    "a field twice, once escaped": of(b"1", rb'"correlation_key":"k","correlation\u005fkey":"l"'),
    "a field twice that nobody knows": of(b"1", b'"correlation_key":"k","x":1,"x":1'),
    "a name twice in a field that nobody knows": of(b"1", b'"correlation_key":"k","x":[{"a":1,"a":2}]'),
    "a signature twice": of(b"1")[:-1] + SIG + SIG + b"}",
    "a field twice, behind a signature": of(b"1")[:-1] + SIG + b',"correlation_key":"l"}',
    "a certificate twice": of(b"1")[:-1] + b',"certificate":{"a":"1"},"certificate":{"a":"1"}' + SIG + b"}",
    "a name twice in a certificate": of(b"1")[:-1] + b',"certificate":{"a":"1","a":"1"}' + SIG + b"}",
    "NaN": of(b"NaN"),
    "-NaN": of(b"-NaN"),
    "Infinity": of(b"[Infinity]"),
    "-Infinity": of(b'{"a":-Infinity}'),
    "NaN in a field that nobody knows": of(b"1", b'"correlation_key":"k","x":NaN'),
    "-Infinity in a field that nobody knows": of(b"1", b'"correlation_key":"k","x":{"y":[-Infinity]}'),
    "a list": b"[" + of(b"1") + b"]",
    "nothing": b"",
}


def by_services(value: bytes) -> bool:
    try:
        return isinstance(decode_event(Record(Topic.JOBS_EVENTS, 0, 0, 0, b"j", HEADERS, value)), Envelope)
    except Undecodable:
        return False


def by_proofs(value: bytes) -> bool:
    return "undecodable" not in {one.rule for one in read(RawRecord(0, b"j", HEADERS, value), 0)[1]}


def by_verify(value: bytes) -> bool:
    return standalone.verify.Record(0, 0, b"j", list(HEADERS), value).readable


def by_check_bundle(value: bytes) -> bool:
    headers = [(name, base64.b64encode(text)) for name, text in HEADERS]
    return bool(CHECK.Record({"offset": 0, "key": None, "headers": headers, "value": base64.b64encode(value)}).body)


READERS: dict[str, Callable[[bytes], bool]] = {
    "services": by_services,
    "proofs": by_proofs,
    "verify.py": by_verify,
    "check_bundle.py": by_check_bundle,
}


@pytest.mark.parametrize("name", [*READABLE, *UNREADABLE])
def test_who_reads_records_reads_the_same_ones(name: str) -> None:
    value = READABLE.get(name) or UNREADABLE.get(name, b"")
    assert {reader: reads(value) for reader, reads in READERS.items()} == dict.fromkeys(READERS, name in READABLE)


def test_what_is_recorded_of_any_result_can_be_read() -> None:
    """However deep a tool nests what it returns."""
    for levels in (1, MAX_DEPTH, MAX_DEPTH + 1, 250, 5_000):
        value: Any = 1
        for _ in range(levels):
            value = [value]
        kept = of(result(value)[1])
        assert all(reads(kept) for reads in READERS.values()), levels


@settings(max_examples=200, deadline=None)
@given(NESTED, st.booleans(), st.sampled_from([None, 1]))
def test_how_deep_it_nests_is_known_before_it_is_parsed(value: Any, ascii_only: bool, indent: int | None) -> None:
    data = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()
    for levels in range(12):
        expected = is_deep(value, levels)
        assert {name: deeper(data, levels) for name, deeper in DEEPER.items()} == dict.fromkeys(DEEPER, expected)
