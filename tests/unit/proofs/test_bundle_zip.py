"""A bundle from anybody: its zip and its envelope have one form each, judged before anything in them is read."""

import base64
import io
import json
import os
import struct
import tracemalloc
import zipfile
import zlib
from collections.abc import Sequence
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aetheris.proofs import bundle, bundle_zip, seals
from aetheris.proofs.evidence import dumps
from aetheris.proofs.trust import TrustedKey
from tests.testkit import standalone
from tests.testkit.evidence import KEY, OTHER_KEY, TRUSTED, bundle_of, sealed, signer
from tests.testkit.forged_bundles import envelope_of, named, opinions
from tests.testkit.proof_histories import clean


def changed_envelope(**changed: Any) -> bytes:
    return bundle_zip.pack(dumps(envelope_of(bundle_of(sealed(clean()).records)) | changed))


def test_an_envelope_is_signed_as_a_whole() -> None:
    good = envelope_of(bundle_of(sealed(clean()).records))
    one = good["signatures"][0]
    forged = {**one, "sig": base64.b64encode(bytes(64)).decode()}
    wrong = {
        "bad_envelope": changed_envelope(payloadType="application/json"),
        "envelope_signature": changed_envelope(signatures=[forged]),
        "envelope_unknown_key": changed_envelope(signatures=[{**one, "keyid": "0" * 16}]),
    }
    wrong |= {"none": changed_envelope(signatures=[])}
    for rule, data in wrong.items():
        own, other = opinions(data)
        expected = "envelope_unknown_key" if rule == "none" else rule
        assert (named(own), named(other)) == ({(expected, "")}, {(expected, "")})
    own, other = opinions(changed_envelope(signatures=[{"keyid": "else", "sig": "AAAA"}, one]))
    assert (own["ok"], other["ok"]) == (True, True), "a signature of somebody unknown is passed over"


def test_an_envelope_has_one_form() -> None:
    """Else what is signed had to be looked for in what nobody signed."""
    good = envelope_of(bundle_of(sealed(clean()).records))
    whole = dumps(good)
    strange = {
        "not JSON": b"{",
        "nothing": b"",
        "an array": b"[]",
        "another order": dumps(dict(reversed(good.items()))),
        "something beside": dumps(good | {"note": "hello"}),
        "a payload twice": whole[:-1] + b',"payload":"AAAA"}',
        "more space": json.dumps(good).encode(),
        "an escape in the payload": whole.replace(b"A", b"\\u0041", 1),
        "too much beside": dumps(good | {"signatures": [*good["signatures"], {"keyid": "x" * bundle.MAX_BESIDE}]}),
        "signatures that are none": dumps(good | {"signatures": {}}),
        "nested without end": whole[:-1] + b"[" * 50_000,
    }
    for name, data in strange.items():
        own, other = opinions(bundle_zip.pack(data))
        assert (named(own), named(other)) == ({("bad_envelope", "")}, {("bad_envelope", "")}), name


def swollen(extra: bytes, key: Ed25519PrivateKey) -> bytes:
    """A good bundle whose predicate has a field more, which nobody asks for."""
    good = base64.b64decode(envelope_of(bundle_of(sealed(clean()).records))["payload"])
    payload = good[:-2] + b',"extra":' + extra + b"}}"
    signature = dict(signer(key)(seals.pae(bundle.PAYLOAD_TYPE, payload)))
    return bundle_zip.pack(bundle.envelope(payload, [signature]))


def test_what_no_trusted_key_signed_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """47 kB that become 700 MB of lists: they are refused as bytes."""
    lists = b"[" + b"[]," * 4_000_000 + b"[]]"
    data = swollen(lists, OTHER_KEY)

    def parses(*_: object, **__: object) -> None:
        raise AssertionError("it was parsed")

    with monkeypatch.context() as patched:
        patched.setattr("aetheris.proofs.bundle.read_statement", parses)
        patched.setattr(standalone.verify, "read_keys", parses)
        tracemalloc.start()
        own, other = opinions(data)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert named(own) == named(other) == {("envelope_unknown_key", "")}
    assert peak < 8 * len(lists)
    for keys in (None, TRUSTED):
        own, other = opinions(swollen(lists, KEY), keys)
        assert named(own) == named(other) == {("bad_statement", "")}, "nor, whoever signed it, more than it may have"


@pytest.mark.parametrize("keys", [None, TRUSTED], ids=["its own keys", "a given key"])
@pytest.mark.parametrize("levels", [bundle.MAX_DEPTH - 1, 900, 5_000, 100_000])
def test_a_statement_that_nests_too_deep_is_none(keys: Sequence[TrustedKey] | None, levels: int) -> None:
    own, other = opinions(swollen(b"[" * levels + b"]" * levels, KEY), keys)
    assert named(own) == named(other) == {("bad_statement", "")}


def test_a_statement_may_nest_as_deep_as_its_records() -> None:
    own, other = opinions(swollen(b"[" * (bundle.MAX_DEPTH - 2) + b"]" * (bundle.MAX_DEPTH - 2), KEY))
    assert (own["ok"], other["ok"]) == (True, True)


def zipped(*entries: tuple[str, bytes], comment: bytes = b"", **options: Any) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", **options) as archive:
        for name, content in entries:
            archive.writestr(zipfile.ZipInfo(name), content, options.get("compression"))
        archive.comment = comment
    return target.getvalue()


def streamed(name: str, content: bytes) -> bytes:
    """As a zip that is written to a pipe: sizes follow the data."""

    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    target = Pipe()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive, archive.open(name, "w") as file:
        file.write(content)
    return target.getvalue()


def with_extra(name: str, content: bytes, extra: bytes) -> bytes:
    entry = zipfile.ZipInfo(name)
    entry.extra = extra
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(entry, content)
    return target.getvalue()


def with_bytes_between(good: bytes, added: bytes) -> bytes:
    """Behind the data and before the directory, whose place is put right."""
    at = good.rindex(b"PK\1\2")
    place = int.from_bytes(good[-6:-2], "little") + len(added)
    return good[:at] + added + good[at:-6] + place.to_bytes(4, "little") + good[-2:]


def before(good: bytes, other: bytes) -> bytes:
    """A second zip before the first, whose offsets are put right, so that zip tools read it."""
    directory, place = good.rindex(b"PK\1\2"), int.from_bytes(good[-6:-2], "little") + len(other)
    entry = good[directory : directory + 42] + len(other).to_bytes(4, "little") + good[directory + 46 : -22]
    return other + good[:directory] + entry + good[-22:-6] + place.to_bytes(4, "little") + good[-2:]


def changed_at(data: bytes, *places: int, by: int = 1) -> bytes:
    changed = bytearray(data)
    for at in places:
        changed[at] ^= by
    return bytes(changed)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_zip_has_the_envelope_and_not_a_byte_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    good = bundle_of(sealed(clean()).records)
    envelope = (bundle_zip.ENVELOPE, dumps(envelope_of(good)))
    monkeypatch.setattr(bundle_zip, "MAX_BYTES", 1_000_000)
    monkeypatch.setattr(standalone.verify, "MAX_BYTES", 1_000_000)
    deflated = zipfile.ZIP_DEFLATED
    strange = {
        "nothing": b"",
        "no zip": b"PK\x03\x04 and so on",
        "something before it": b"#!/bin/sh\n" + good,
        "a second zip before it": before(good, good),
        "a second zip behind it": good + good,
        "something behind it": good + b"x" * 22,
        "something between": with_bytes_between(good, b"hidden"),
        "cut off": good[:-30],
        "a verifier of its own": zipped(envelope, ("verify.py", b"print('holds')"), compression=deflated),
        "traversal": zipped(envelope, ("../../etc/x", b"")),
        "one entry twice": zipped(envelope, envelope),
        "another instead": zipped((bundle_zip.ENVELOPE.upper(), envelope[1]), compression=deflated),
        "a name of the same length": good.replace(b"bundle.dsse.json", b"../../../dsse.js"),
        "a comment": zipped(envelope, compression=deflated, comment=b"hello"),
        "sizes behind the data": streamed(*envelope),
        "zip64": with_extra(*envelope, b"\1\0\x10\0" + bytes(16)),
        "another extra field": with_extra(*envelope, b"\x55\x54\1\0x"),
        "encrypted": changed_at(good, 6, good.rindex(b"PK\1\2") + 8),
        "an unusual packing": zipped(envelope, compression=zipfile.ZIP_LZMA),
        "another checksum": changed_at(good, 14, good.rindex(b"PK\1\2") + 16),
        "another time": changed_at(good, 10, good.rindex(b"PK\1\2") + 12),
        "on another disk": changed_at(good, len(good) - 18),
        "data that is none": changed_at(good, 60, by=0xFF),
        "a bomb": deflated_by_hand(bytes(900_000), 900_000),
        "too much": deflated_by_hand(os.urandom(1_100_000), 1_100_000),
        "more than it says": deflated_by_hand(envelope[1], len(envelope[1]) - 1),
        "less than it says": deflated_by_hand(envelope[1], len(envelope[1]) + 1),
        "more behind the packed data": deflated_by_hand(envelope[1], len(envelope[1]), b"hidden"),
    }
    for name, data in strange.items():
        own, other = opinions(data)
        assert (named(own), named(other)) == ({("bad_zip", "")}, {("bad_zip", "")}), name
    assert deflated_by_hand(envelope[1], len(envelope[1])) == good


def deflated_by_hand(content: bytes, size: int, behind: bytes = b"") -> bytes:
    """A zip in the bundle's form with what its writer would not put there."""
    deflater = zlib.compressobj(6, zlib.DEFLATED, -15)
    packed = deflater.compress(content) + deflater.flush() + behind
    form = bundle_zip.pack(b"")
    directory = form.rindex(b"PK\1\2")
    about = struct.pack("<HHHIII", 8, 0, 33, zlib.crc32(content), len(packed), size)
    local = form[:8] + about + form[26:46]
    central = form[directory : directory + 10] + about + form[directory + 28 : -22]
    return local + packed + central + form[-22:-6] + struct.pack("<IH", len(local) + len(packed), 0)


def test_what_packs_very_tight_is_stored() -> None:
    """So a small file never becomes a large one, and no honest result is refused for what it is."""
    for content in (b"", b"x", b"x" * 1_000_000, os.urandom(10_000)):
        data = bundle_zip.pack(content)
        assert bundle_zip.unpack(data) == standalone.verify.unzip(data) == content
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            assert (archive.namelist(), archive.testzip()) == ([bundle_zip.ENVELOPE], None)
            assert archive.read(bundle_zip.ENVELOPE) == content
