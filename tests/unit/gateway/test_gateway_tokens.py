"""Bearer tokens: who calls, and what a wrong file says."""

import hashlib
from pathlib import Path

import pytest

from aetheris.gateway.core.caller import Caller
from aetheris.gateway.core.problems import UnauthorizedProblem
from aetheris.gateway.registry import version_order
from aetheris.gateway.tokens import Tokens, TokensFileInvalid

FILE = f"""
[[token]]
value = "plain-token"
name = "ann"
tenant = "acme"

[[token]]
sha256 = "{hashlib.sha256(b"hashed-token").hexdigest()}"
name = "bob"
tenant = "other"
"""


def load(tmp_path: Path, text: str) -> Tokens:
    path = tmp_path / "tokens.toml"
    path.write_text(text)
    return Tokens.load(path)


def test_both_kinds_are_known(tmp_path: Path) -> None:
    tokens = load(tmp_path, FILE)
    assert tokens.caller("Bearer plain-token") == Caller("ann", "acme")
    assert tokens.caller("bearer hashed-token") == Caller("bob", "other")


def test_only_whose_token_says_so_is_an_operator(tmp_path: Path) -> None:
    tokens = load(tmp_path, FILE.replace('name = "bob"', 'name = "bob"\noperator = true'))
    callers = [tokens.caller(f"Bearer {kind}-token") for kind in ("plain", "hashed")]
    assert [one.operator for one in callers] == [False, True]


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "Bearer wrong", "Basic plain-token", "plain-token"])
def test_others_are_not(tmp_path: Path, header: str | None) -> None:
    with pytest.raises(UnauthorizedProblem):
        load(tmp_path, FILE).caller(header)


def test_a_missing_file_lets_nobody_in(tmp_path: Path) -> None:
    with pytest.raises(UnauthorizedProblem):
        Tokens.load(tmp_path / "none.toml").caller("Bearer plain-token")


@pytest.mark.parametrize(
    "text",
    [
        '[[token]]\nname = "a"\n',
        '[[token]]\nname = "a"\nvalue = "s3cret-token"\nsha256 = "00"\n',
        '[[token]]\nvalue = "s3cret-token"\n',
        '[[token]]\nname = "a"\nvalue = "s3cret-token"\nrole = "x"\n',
        "token = 7",
        "[[token",
    ],
)
def test_a_wrong_file_is_refused_without_its_content(tmp_path: Path, text: str) -> None:
    with pytest.raises(TokensFileInvalid) as refused:
        load(tmp_path, text)
    assert "s3cret" not in str(refused.value)


def test_versions_compare_by_number() -> None:
    versions = ["1.10", "1.9", "2.0-rc1", "2.0", "1.9.1", "10"]
    assert sorted(versions, key=version_order) == ["1.9", "1.9.1", "1.10", "2.0-rc1", "2.0", "10"]


@pytest.mark.parametrize("tenant", ["a\\u0000b", "a\\nb", "\\u007f"])
def test_a_tenants_name_has_no_control_characters(tmp_path: Path, tenant: str) -> None:
    with pytest.raises(TokensFileInvalid, match="tenant"):
        load(tmp_path, f'[[token]]\nname = "a"\nvalue = "s3cret-token"\ntenant = "{tenant}"\n')
    assert load(tmp_path, FILE.replace('"acme"', '"acme: the 2nd"')).tenants == {"acme: the 2nd", "other"}
