"""The corpus of tamperings, of a stranger: the zip and its envelope."""

import struct
import zipfile
import zlib

from aetheris.proofs import bundle, bundle_zip, seals
from aetheris.proofs.evidence import dumps
from aetheris.proofs.trust import TrustedKey
from tests.testkit.evidence import KEY, OTHER_KEY, signer
from tests.testkit.forged_bundles import NAME, envelope_bytes, envelope_of, payload_of, repacked, signed, zipped
from tests.testkit.tamperings import (
    base64_of,
    by_stranger,
    honest,
)

# The zip.


@by_stranger("run", "bad_zip")
def nothing_is_there(_data: bytes) -> bytes:
    return b""


@by_stranger("run", "bad_zip")
def the_zip_is_cut_off(data: bytes) -> bytes:
    return data[:-1]


@by_stranger("run", "bad_zip")
def bytes_stand_before_the_zip(data: bytes) -> bytes:
    return b"#!/bin/sh\n" + data


@by_stranger("run", "bad_zip")
def bytes_stand_behind_the_zip(data: bytes) -> bytes:
    return data + b"\0"


@by_stranger("run", "bad_zip")
def a_second_zip_stands_before_the_first(data: bytes) -> bytes:
    return honest("human") + data


@by_stranger("run", "bad_zip")
def another_entry_comes_with_it(data: bytes) -> bytes:
    return zipped((NAME, envelope_bytes(data)), ("verify.py", b"print('ok')"))


@by_stranger("run", "bad_zip")
def the_entry_has_another_name(data: bytes) -> bytes:
    return zipped(("evidence.json", envelope_bytes(data)))


@by_stranger("run", "bad_zip")
def the_zip_has_a_comment(data: bytes) -> bytes:
    return data[:-2] + struct.pack("<H", 2) + b"hi"


@by_stranger("run", "bad_zip")
def the_entry_is_packed_otherwise(data: bytes) -> bytes:
    return zipped((NAME, envelope_bytes(data)), compress_type=zipfile.ZIP_BZIP2)


@by_stranger("run", "bad_zip")
def the_entry_has_another_checksum(data: bytes) -> bytes:
    at = data.index(NAME.encode()) - 16
    return data[:at] + bytes(4) + data[at + 4 :]


@by_stranger("run", "bad_zip")
def the_entry_grows_without_end(_data: bytes) -> bytes:
    return bundle_zip.pack(b"{}").replace(zlib.compress(b"{}")[2:-4], zlib.compress(bytes(1_000_000))[2:-4])


@by_stranger("run", "bad_zip")
def there_is_no_zip(data: bytes) -> bytes:
    return envelope_bytes(data)


# The envelope.


@by_stranger("run", "envelope_signature")
def a_statement_is_edited(data: bytes) -> bytes:
    payload = payload_of(data).replace(b'"ok":true', b'"ok":null', 1)
    return repacked(data, payload=base64_of(payload))


@by_stranger("run", "envelope_signature")
def a_payload_is_another_jobs(data: bytes) -> bytes:
    return repacked(data, payload=envelope_of(honest("human"))["payload"])


@by_stranger("run", "envelope_signature")
def a_signature_is_of_nothing(data: bytes) -> bytes:
    one = envelope_of(data)["signatures"][0]
    return repacked(data, signatures=[one | {"sig": base64_of(bytes(64))}])


@by_stranger("run", "envelope_signature")
def a_signature_is_empty(data: bytes) -> bytes:
    one = envelope_of(data)["signatures"][0]
    return repacked(data, signatures=[one | {"sig": ""}])


@by_stranger("run", "envelope_unknown_key")
def a_signature_is_a_strangers(data: bytes) -> bytes:
    payload = payload_of(data)
    signature = dict(signer(OTHER_KEY)(seals.pae(bundle.PAYLOAD_TYPE, payload)))
    return bundle_zip.pack(bundle.envelope(payload, [signature]))


@by_stranger("run", "envelope_signature")
def a_strangers_signature_has_the_trusted_name(data: bytes) -> bytes:
    payload = payload_of(data)
    name = TrustedKey(KEY.public_key()).key_id
    signature = dict(signer(OTHER_KEY)(seals.pae(bundle.PAYLOAD_TYPE, payload)))
    return bundle_zip.pack(bundle.envelope(payload, [signature | {"keyid": name}]))


@by_stranger("run", "envelope_unknown_key")
def nobody_signed_it(data: bytes) -> bytes:
    return repacked(data, signatures=[])


@by_stranger("run", "bad_envelope")
def signatures_are_an_object(data: bytes) -> bytes:
    return repacked(data, signatures={})


@by_stranger("run", "bad_envelope")
def a_signature_is_a_number(data: bytes) -> bytes:
    return repacked(data, signatures=[5])


@by_stranger("run", "bad_envelope")
def an_envelope_has_another_type(data: bytes) -> bytes:
    return repacked(data, payloadType="application/json")


@by_stranger("run", "bad_envelope")
def an_envelope_says_more(data: bytes) -> bytes:
    return repacked(data, note="checked by us")


@by_stranger("run", "bad_envelope")
def an_envelope_has_two_payloads(data: bytes) -> bytes:
    return bundle_zip.pack(dumps(envelope_of(data))[:-1] + b',"payload":"AAAA"}')


@by_stranger("run", "bad_envelope")
def an_envelope_is_no_json(_data: bytes) -> bytes:
    return bundle_zip.pack(b"{")


@by_stranger("run", "bad_envelope")
def a_payload_is_no_base64(data: bytes) -> bytes:
    return repacked(data, payload="é")


@by_stranger("run", "bad_statement")
def a_statement_is_no_json(_data: bytes) -> bytes:
    return signed(b"{")


@by_stranger("run", "bad_statement")
def a_statement_is_a_list(_data: bytes) -> bytes:
    return signed(b"[]")


@by_stranger("run", "bad_statement")
def a_statement_has_a_name_twice(data: bytes) -> bytes:
    return signed(payload_of(data)[:-1] + b',"subject":[]}')


@by_stranger("run", "bad_statement")
def a_statement_is_a_number(_data: bytes) -> bytes:
    return signed(b"5")


@by_stranger("run", "bad_statement")
def a_statement_is_nested_without_end(data: bytes) -> bytes:
    return signed(payload_of(data)[:-1] + b',"x":' + b"[" * 9_000 + b"]" * 9_000 + b"}")


@by_stranger("run", "bad_statement")
def a_statement_is_nested_deep(data: bytes) -> bytes:
    return signed(payload_of(data)[:-1] + b',"x":' + b"[" * 300 + b"]" * 300 + b"}")


@by_stranger("run", "bad_statement")
def a_statement_has_an_infinite_number(data: bytes) -> bytes:
    return signed(payload_of(data)[:-1] + b',"x":Infinity}')
