"""Statements of a form that nobody writes, signed all the same: both verifiers refuse them alike; neither crashes."""

import base64
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from aetheris.proofs.trust import TrustedKey
from tests.testkit.evidence import TRUSTED, bundle_of, sealed
from tests.testkit.forged_bundles import named, opinions, resigned
from tests.testkit.proof_histories import clean

Statement = dict[str, Any]
Change = Callable[[Statement], object]
LONE = "\ud800"
ONE = TRUSTED[0].to_json()
OF_ANOTHER_KIND = (
    ec.generate_private_key(ec.SECP256R1())
    .public_key()
    .public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    .decode()
)
NONE_AT_ALL = "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"


def of_predicate(**fields: Any) -> Change:
    return lambda statement: statement["predicate"].update(fields)


def of_record(**fields: Any) -> Change:
    return lambda statement: statement["predicate"]["records"][2].update(fields)


def of_bodies(**fields: Any) -> Change:
    """In each record but the seal."""

    def change(statement: Statement) -> None:
        for record in statement["predicate"]["records"][:-1]:
            body = json.loads(base64.b64decode(record["value"])) | fields
            record["value"] = base64.b64encode(json.dumps(body).encode()).decode()

    return change


def deep(levels: int) -> Change:
    def change(statement: Statement) -> None:
        record = statement["predicate"]["records"][2]
        value = base64.b64decode(record["value"])[:-1] + b',"result":' + b"[" * levels + b"]" * levels + b"}"
        record["value"] = base64.b64encode(value).decode()

    return change


def of_inclusion(old: str, new: str) -> Change:
    def change(statement: Statement) -> None:
        predicate = statement["predicate"]
        predicate["inclusion"] = predicate["inclusion"].replace(old, new)

    return change


FIELDS = ("task_graph", "output_hash", "node_id", "args", "job_id", "idempotency_key", "invocation_id", "outcome")
BAD_KEYS: dict[str, list[Any]] = {
    "of another kind": [{"public_key": OF_ANOTHER_KIND}],
    "none at all": [{"public_key": NONE_AT_ALL}],
    "a number": [5],
    "null": [ONE, {"public_key": None}],
    "a number within": [{"public_key": 7}],
    "a lone surrogate": [ONE, {"public_key": LONE}],
    "no id": [{**ONE, "key_id": None}],
    "no time": [{**ONE, "valid_from": "x"}],
    "a number for a time": [{**ONE, "valid_from": 7}],
    "false for a time": [{**ONE, "valid_from": False}],
    "a time nowhere": [{**ONE, "valid_from": "2020-01-01"}],
    "twice": [ONE, ONE],
}
STRANGE: dict[str, Change] = {
    "a number for a header's name": of_record(headers=[[5, ""]]),
    "null for a header's name": of_record(headers=[[None, ""]]),
    "a lone surrogate for a header's name": of_record(headers=[[LONE, ""]]),
    "a text for a header": of_record(headers=["ab"]),
    "an object for headers": of_record(headers={"ab": 1}),
    "true for an offset": of_record(offset=True),
    "a fraction for an offset": of_record(offset=1.0),
    "a number for a key": of_record(key=5),
    "null for a value": of_record(value=None),
    "no base64 for a value": of_record(value="é"),
    "an object for records": of_predicate(records={"a": 1}),
    "a text for records": of_predicate(records="ab"),
    "a list for blobs": of_predicate(blobs=[]),
    "a number for a blob": of_predicate(blobs={"a": 1}),
    "a lone surrogate for a blob's name": of_predicate(blobs={LONE: ""}),
    "a lone surrogate for a job": of_predicate(job_id=LONE),
    "a number for a job": of_predicate(job_id=5),
    "a lone surrogate for a proof": of_predicate(inclusion=LONE),
    "a lone surrogate in a checkpoint's origin": of_inclusion("example.com", LONE),
    "a lone surrogate in a checkpoint": of_inclusion("\n\u2014 ", f"\n{LONE}\n\n\u2014 "),
    "a text for what it continues": of_predicate(continued="ab"),
    "null for what it continues": of_predicate(continued=None),
    "a list for the predicate": lambda statement: statement.update(predicate=[]),
    "a lone surrogate for the subject": lambda statement: statement.update(subject=LONE),
    **{f"keys: {name}": of_predicate(keys=keys) for name, keys in BAD_KEYS.items()},
    **{f"{levels} levels": deep(levels) for levels in (64, 190, 250, 900, 2_000, 100_000)},
    **{f"a lone surrogate in {name}": of_bodies(**{name: LONE}) for name in FIELDS},
    **{f"a name that is one in {name}": of_bodies(**{name: {LONE: 1}}) for name in FIELDS},
}


@pytest.mark.parametrize("keys", [TRUSTED, None], ids=["a given key", "its own keys"])
@pytest.mark.parametrize("name", STRANGE)
def test_both_refuse_it_alike(name: str, keys: Sequence[TrustedKey] | None) -> None:
    own, other = opinions(resigned(bundle_of(sealed(clean()).records), STRANGE[name]), keys)
    assert named(own) == named(other)
    harmless = name in ("a list for blobs", "a lone surrogate for a blob's name")
    assert (own["ok"], other["ok"]) in ([(False, False), (True, True)] if harmless else [(False, False)])
