"""Bearer tokens: who calls, until when, and what becomes of a file that changes."""

import os
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from aetheris.cli import token_files
from aetheris.gateway.core import token_entries
from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import UnauthorizedProblem
from aetheris.gateway.core.token_entries import TokenEntry, TokensFault
from aetheris.gateway.registry import version_order
from aetheris.gateway.tokens import Tokens, TokensFileInvalid
from aetheris.protocol.base.principals import PrincipalKind, Role
from aetheris.runtime.base.clock import SystemClock
from aetheris.testkit.clock import VirtualClock
from tests.testkit.tokens import entry_of, token_of

ANN = entry_of("ann", "acme")
BOB = entry_of("bob", "other", roles=(Role.READ,), kind=PrincipalKind.AGENT)


def write(path: Path, *entries: TokenEntry) -> Path:
    """Whole, by another file that takes its place, as `aetheris token` does."""
    beside = path.with_suffix(".new")
    beside.write_text(token_entries.rendered(entries))
    beside.replace(path)
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "tokens.toml", ANN, BOB)


@pytest.fixture
def tokens(path: Path) -> Tokens:
    return Tokens(path, SystemClock())


def test_a_token_says_who_calls_and_what_he_may_do(tokens: Tokens) -> None:
    assert tokens.principal(token_of("ann")) == Principal("ann", "acme", PrincipalKind.PERSON, frozenset(Role))
    found = tokens.principal(token_of("bob"))
    assert found == Principal("bob", "other", PrincipalKind.AGENT, frozenset({Role.READ}))


@pytest.mark.parametrize("token", ["", "wrong", token_of("eve"), token_of("ann")[:-1], token_of("ann") + "0"])
def test_others_are_not_known(tokens: Tokens, token: str) -> None:
    with pytest.raises(UnauthorizedProblem):
        tokens.principal(token)


def test_a_short_token_is_refused_whatever_the_file_says(path: Path) -> None:
    short = "guess-me"
    write(path, token_files.entry(short, "ann", "acme", kind=PrincipalKind.PERSON))
    with pytest.raises(UnauthorizedProblem):
        Tokens(path, SystemClock()).principal(short)


async def test_an_expired_token_is_refused(path: Path) -> None:
    clock = VirtualClock()
    until = clock.now() + timedelta(hours=1)
    write(path, ANN.model_copy(update={"expires": until}))
    tokens = Tokens(path, clock)
    assert tokens.principal(token_of("ann")).id == "ann"
    await clock.advance(3600.0)
    with pytest.raises(UnauthorizedProblem):
        tokens.principal(token_of("ann"))


def test_a_revoked_token_is_refused_at_once_and_a_new_one_taken(path: Path, tokens: Tokens) -> None:
    for _ in range(20):  # also where the file's times have not moved since
        write(path, BOB)
        with pytest.raises(UnauthorizedProblem):
            tokens.principal(token_of("ann"))
        write(path, ANN, BOB)
        assert tokens.principal(token_of("ann")).id == "ann"
    path.unlink()
    with pytest.raises(UnauthorizedProblem):
        tokens.principal(token_of("ann"))


def broken(path: Path) -> None:
    path.write_text("[[token")


def unreadable(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("spoil", [broken, unreadable])
def test_a_file_that_breaks_leaves_what_was_known(path: Path, tokens: Tokens, spoil: Callable[[Path], None]) -> None:
    spoil(path)
    os.utime(path, (1.0, 1.0))
    for _ in range(2):
        assert tokens.principal(token_of("ann")).id == "ann"
    with pytest.raises(UnauthorizedProblem):
        tokens.principal(token_of("eve"))


def test_a_missing_file_lets_nobody_in(tmp_path: Path) -> None:
    with pytest.raises(UnauthorizedProblem):
        Tokens(tmp_path / "none.toml", SystemClock()).principal(token_of("ann"))


def test_what_is_written_is_what_is_read() -> None:
    until = datetime(2031, 1, 2, 3, 4, 5, tzinfo=UTC)
    entries = (ANN.model_copy(update={"expires": until, "name": 'a "b" \\ ü'}), BOB)
    assert token_entries.parsed(token_entries.rendered(entries)) == entries


GOOD = token_entries.rendered([ANN])


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("token = 7", "token must be a list"),
        ("[[token", "not valid TOML"),
        ("[[token]]\n", r"token\[0\].name"),
        (GOOD.replace('name = "ann"\n', ""), r"token\[0\].name"),
        (GOOD.replace('"acme"', '""'), r"token\[0\].tenant"),
        (re.sub("roles = .*", "roles = []", GOOD), r"token\[0\].roles"),
        (re.sub("roles = .*", 'roles = ["root"]', GOOD), r"token\[0\].roles.0"),
        (GOOD.replace('"person"', '"god"'), r"token\[0\].kind"),
        (re.sub("sha256 = .*", 'value = "s3cret-token"', GOOD), r"token\[0\].(sha256|value)"),
        (GOOD + 'value = "s3cret-token"\n', r"token\[0\].value .*SHA-256"),
        (GOOD + "expires = 2031-01-01T00:00:00\n", r"token\[0\].expires"),
        (GOOD + "operator = true\n", r"token\[0\].operator"),
        (GOOD + "\n" + GOOD, r"token\[1\].sha256 is that of token\[0\]"),
        (token_entries.rendered([ANN, entry_of("bob", "acme"), entry_of("x").model_copy(
            update={"name": "ann", "tenant": "acme", "kind": PrincipalKind.AGENT})]), r"token\[2\].kind"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_without_its_content(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(text)
    with pytest.raises(TokensFileInvalid, match=named) as refused:
        Tokens(path, SystemClock())
    assert "s3cret" not in str(refused.value)
    with pytest.raises(TokensFault):
        token_entries.parsed(text)


def test_versions_compare_by_number() -> None:
    versions = ["1.10", "1.9", "2.0-rc1", "2.0", "1.9.1", "10"]
    assert sorted(versions, key=version_order) == ["1.9", "1.9.1", "1.10", "2.0-rc1", "2.0", "10"]


@pytest.mark.parametrize("tenant", ["a\\u0000b", "a\\nb", "\\u007f"])
def test_a_tenants_name_has_no_control_characters(tmp_path: Path, tenant: str) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(GOOD.replace('"acme"', f'"{tenant}"'))
    with pytest.raises(TokensFileInvalid, match="tenant"):
        Tokens(path, SystemClock())
    written = write(tmp_path / "good.toml", entry_of("ann", "acme: the 2nd"), BOB)
    assert Tokens(written, SystemClock()).tenants == {"acme: the 2nd", "other"}
