"""A canary is found in base64 whatever stands before and behind it (tests/testkit/canary.py)."""

import base64
import json
import secrets
from collections.abc import Callable

import pytest

from tests.testkit.canary import forms_of


@pytest.mark.parametrize("before", range(4))
@pytest.mark.parametrize("behind", range(4))
def test_a_value_is_found_in_base64_at_every_place(before: int, behind: int) -> None:
    value = f'canary/{secrets.token_urlsafe(24)}+"ä'
    content = base64.b64encode(secrets.token_bytes(before) + value.encode() + secrets.token_bytes(behind))
    assert any(form in content for form in forms_of(value))


@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
@pytest.mark.parametrize("before", range(3))
def test_a_value_is_found_in_base64_of_a_text_that_quotes_it(before: int, encode: Callable[[bytes], bytes]) -> None:
    value = f'ann.{secrets.token_urlsafe(18)}+"ä@example.org'
    content = encode(b" " * before + json.dumps({"said": [value]}).encode())
    assert any(form in content for form in forms_of(value))
