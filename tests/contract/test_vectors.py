"""The vectors of the contracts: byte for byte, whoever implements it."""

import pytest

from aetheris.protocol.base import keys, recordable
from aetheris.protocol.base.canonical import InvalidArgs, canonical, digest, parse
from aetheris.protocol.base.ids import InvalidName, derived, event_id, execution_id, job_id_of

EMPTY = "1bfd47728d2a47d5a889eb904940104ad730dc766e3b46cf7d72fea47b0304c6"
REFUND = "b3824f0b4be4066b76451badd44d6753ba23d27114d4f8600236529951b5a817"
NULL = "082726f5e2dd82ef87581b01dbd88686c7c02ac2f68ec1038580ef18937ef644"


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ("{}", EMPTY),
        ('{"amount":100,"order_id":"o-1"}', REFUND),
        ('{"amount":100.0,"order_id":"o-1"}', REFUND),
        ('{"order_id":"o-1","amount":1e2}', REFUND),
        ('{"x":null}', NULL),
    ],
)
def test_idempotency_key(args: str, expected: str) -> None:
    assert keys.idempotency_key("job-1", "node-1", "refund", parse(args)) == expected


def test_absent_arguments_are_empty_arguments() -> None:
    assert keys.idempotency_key("job-1", "node-1", "refund", None) == EMPTY
    assert keys.args_hash(None) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@pytest.mark.parametrize(
    "text",
    [
        '{"a":9007199254740993}',
        '{"a":-9007199254740993}',
        '{"a":NaN}',
        '{"a":Infinity}',
        '{"a":1e999}',
        '{"a":"\\ud800"}',
        '{"\\udfff":1}',
        '{"a":1,"a":1}',
        '{"a":{"b":1,"b":2}}',
        "{",
        "",
    ],
)
def test_what_has_no_exact_form_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgs):
        canonical(parse(text))


def test_the_refusal_names_the_field() -> None:
    with pytest.raises(InvalidArgs) as refused:
        canonical({"order": {"lines": [1, 2**53]}})
    assert refused.value.field == "/order/lines/1"


def test_largest_exact_integer() -> None:
    assert canonical({"a": 2**53 - 1}) == b'{"a":9007199254740991}'


def test_digest_is_sha256_of_jcs() -> None:
    assert digest({"nodes": []}) == "acf2fa576acb702442f9d0101673354c398db67315c066ca48be8db8e0d2c75b"


def test_external_key_and_trace_id() -> None:
    assert keys.external_key("job-1", "node-1", 0) == "aetheris:job-1:node-1:0"
    assert keys.trace_id(EMPTY) == "1bfd47728d2a47d5a889eb904940104a"


def test_content_key_leaves_volatile_fields_out() -> None:
    one = keys.content_key("acme", "mail", {"to": "a@b", "at": 1}, ["at"])
    two = keys.content_key("acme", "mail", {"to": "a@b", "at": 2}, ["at"])
    assert one == two != keys.content_key("other", "mail", {"to": "a@b", "at": 1}, ["at"])
    assert one == "32102b0595eb44ea65f82a0e10c0d7a1a64336b3fad06c72bbe436e2044d0bd8"


def test_a_name_has_no_colon() -> None:
    with pytest.raises(InvalidName, match="node_id"):
        keys.idempotency_key("job-1", "a:b", "refund", {})


def test_derived_ids() -> None:
    assert derived("a", "b") == "3b11c4eb-f93f-55ab-93a2-8766609edac6"
    assert job_id_of("acme", "k") == "3aae2e2a-ea76-5770-8384-d7b4de063387"
    assert event_id("j", "t", "x") == "838353f4-710e-53f2-a9b5-faed2513c5cc"
    assert execution_id("j", "n", "k") == "5ae92694-c075-51aa-a405-b186eb7f41fd"


def test_a_result_is_never_refused() -> None:
    kept = recordable.result({"n": 2**60})[0]
    assert set(kept) == {"$raw"}
    assert recordable.result({"n": 1})[0] == {"n": 1}
