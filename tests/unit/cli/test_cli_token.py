"""`aetheris token`, the two tokens of a data folder, and whom they are sent to."""

import json
import os
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from aetheris.cli import local, token_files
from aetheris.cli.app import app
from aetheris.cli.embedded.errors import EmbeddedError, NotRunningError
from aetheris.gateway.core.problems import UnauthorizedProblem
from aetheris.gateway.tokens import Tokens, TokensFileInvalid
from aetheris.protocol.base.principals import ORDINARY, PrincipalKind, Role
from aetheris.runtime.base.clock import SystemClock


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("AETHERIS_URL", "AETHERIS_TOKEN", "AETHERIS_TOKENS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "data"


def call(data: Path, *argv: str) -> Result:
    return CliRunner().invoke(app, ["token", *argv, "--data", str(data)])


def added(data: Path, name: str, *argv: str) -> str:
    """The token, as it was printed."""
    shown = call(data, "add", name, *argv)
    assert shown.exit_code == 0, shown.stderr
    return shown.stdout.strip()


CAROL = ("carol", "--kind", "person", "--role", "approve", "--role", "read", "--tenant", "acme", "--expires", "30d")


def known(data: Path) -> Tokens:
    return Tokens(data / "tokens.toml", SystemClock())


def test_a_token_is_printed_once_and_stored_nowhere(data: Path) -> None:
    secret = added(data, *CAROL)
    who = known(data).principal(secret)
    assert (who.id, who.tenant, who.kind) == ("carol", "acme", PrincipalKind.PERSON)
    assert who.roles == {Role.APPROVE, Role.READ}
    assert len(secret) >= 32 + len("aetheris_")
    assert all(secret not in file.read_text() for file in data.rglob("*") if file.is_file())
    assert stat.S_IMODE((data / "tokens.toml").stat().st_mode) == 0o600


def test_the_list_shows_who_and_until_when_and_no_value(data: Path) -> None:
    secret = added(data, *CAROL)
    added(data, "bot", "--kind", "agent", "--role", "submit", "--expires", "never")
    rows = json.loads(call(data, "ls", "--json").stdout)
    assert [(row["name"], row["kind"], row["roles"]) for row in rows] == [
        ("carol", "person", ["approve", "read"]),
        ("bot", "agent", ["submit"]),
    ]
    assert (rows[0]["expires"] is not None, rows[1]["expires"]) == (True, None)
    printed = call(data, "ls").stdout
    assert ("carol" in printed, secret in printed) == (True, False)


def test_a_revoked_token_is_refused_by_who_runs_already(data: Path) -> None:
    secret, other = added(data, *CAROL, "--save"), added(data, *CAROL)
    tokens = known(data)
    assert token_files.saved(data, "carol") == secret
    rows = json.loads(call(data, "ls", "--json").stdout)
    assert call(data, "revoke", "carol", "--id", rows[1]["id"]).exit_code == 0
    with pytest.raises(UnauthorizedProblem):
        tokens.principal(other)
    assert tokens.principal(secret).id == "carol"
    assert call(data, "revoke", "carol").exit_code == 0
    with pytest.raises(UnauthorizedProblem):
        tokens.principal(secret)
    with pytest.raises(NotRunningError):
        token_files.saved(data, "carol")


def test_whose_token_goes_is_said_where_several_tenants_have_the_name(data: Path) -> None:
    added(data, *CAROL)
    added(data, "carol", "--kind", "agent", "--role", "submit", "--tenant", "other")
    shown = call(data, "revoke", "carol")
    assert (shown.exit_code, "--tenant" in shown.stderr) == (2, True)
    assert call(data, "revoke", "carol", "--tenant", "other").exit_code == 0
    assert [row["tenant"] for row in json.loads(call(data, "ls", "--json").stdout)] == ["acme"]


@pytest.mark.parametrize(
    "argv",
    [
        ("add", "carol", "--kind", "person"),
        ("add", "carol", "--role", "read"),
        ("add", "carol", "--kind", "person", "--role", "root"),
        ("add", "a\nb", "--kind", "person", "--role", "read"),
        ("add", "../x", "--kind", "person", "--role", "read", "--save"),
        ("add", "carol", "--kind", "person", "--role", "read", "--expires", "soon"),
        ("revoke", "nobody"),
        ("let", "approver", "bob", "--expires", "never"),
        ("let", "nobody", "bob", "--expires", "1d"),
        ("let", "approver", "approver", "--expires", "1d"),
        ("let", "approver", "bob", "--expires", "1d", "--role", "administer"),
        ("let", "approver", "bob", "--expires", "1d", "--role", "submit"),
    ],
)
def test_bad_input_changes_nothing(data: Path, argv: tuple[str, ...]) -> None:
    token_files.ensure_tokens(data)
    before = {file: file.read_bytes() for file in data.rglob("*") if file.is_file()}
    assert call(data, *argv).exit_code == 2
    assert {file: file.read_bytes() for file in data.rglob("*") if file.is_file()} == before


def test_what_is_lent_has_an_end_and_names_who_lent_it(data: Path) -> None:
    added(data, *CAROL)
    shown = call(data, "let", "carol", "bob", "--tenant", "acme", "--role", "approve", "--expires", "2h", "--save")
    assert shown.exit_code == 0, shown.stderr
    who = known(data).principal(shown.stdout.strip())
    assert (who.id, who.roles) == ("bob", {Role.APPROVE})
    assert who.delegation is not None
    assert who.recorded.delegation == who.delegation
    assert who.delegation.principal == "carol"
    assert who.delegation.at < who.delegation.until
    assert "bob for carol" in call(data, "ls").stdout
    assert token_files.saved(data, "bob:carol") == shown.stdout.strip()
    assert call(data, "revoke", "bob").exit_code == 0
    assert not (data / "tokens/bob:carol").exists()


def test_what_is_lent_takes_no_place_of_what_another_has(data: Path) -> None:
    """Whatever people are called, in whatever order they come."""
    added(data, *CAROL)
    named = [name for name in ("bob-for-carol", "bob", "bob+carol", "bob.carol") if added_as(data, name)]
    assert len(named) == 4
    before = {name: token_files.saved(data, name) for name in named}
    shown = call(data, "let", "carol", "bob", "--tenant", "acme", "--role", "approve", "--expires", "2h", "--save")
    lent = shown.stdout.strip()
    assert {name: token_files.saved(data, name) for name in named} == before
    assert not added_as(data, "bob:carol")
    assert token_files.saved(data, "bob:carol") == lent


def added_as(data: Path, name: str) -> bool:
    """Whether somebody may have this name, and keep a token here."""
    shown = call(
        data, "add", name, "--kind", "person", "--role", "read", "--tenant", "acme", "--expires", "2h", "--save"
    )
    return shown.exit_code == 0


def test_nobody_lends_what_he_may_not_do_himself(data: Path) -> None:
    added(data, *CAROL)
    shown = call(data, "let", "carol", "bob", "--tenant", "acme", "--role", "resolve", "--expires", "2h")
    assert (shown.exit_code, "carol has no token here that may resolve" in shown.stderr) == (2, True)
    assert [row["name"] for row in json.loads(call(data, "ls", "--json").stdout)] == ["carol"]


def test_what_is_lent_goes_with_what_the_lender_has(data: Path) -> None:
    added(data, *CAROL)
    lent = call(data, "let", "carol", "bob", "--tenant", "acme", "--role", "approve", "--expires", "2h").stdout.strip()
    assert known(data).principal(lent).roles == {Role.APPROVE}
    assert call(data, "revoke", "carol").exit_code == 0
    added(data, "carol", "--kind", "person", "--role", "read", "--tenant", "acme")
    with pytest.raises(UnauthorizedProblem):
        known(data).principal(lent)
    ended = token_files.entry(
        "x" * 40, "carol", "acme", kind=PrincipalKind.PERSON, expires=datetime(2020, 1, 1, tzinfo=UTC)
    )
    with token_files.changed(data / "tokens.toml") as entries:
        entries.append(ended)
    with pytest.raises(UnauthorizedProblem):
        known(data).principal(lent)


def test_a_broken_file_is_named_and_left_as_it_is(data: Path) -> None:
    data.mkdir()
    (data / "tokens.toml").write_text("[[token")
    with pytest.raises(TokensFileInvalid, match=r"tokens\.toml"):
        token_files.listed(data / "tokens.toml")
    assert call(data, *("add", *CAROL)).exit_code == 78
    assert (data / "tokens.toml").read_text() == "[[token"


def test_a_name_is_one_kind_of_principal(data: Path) -> None:
    added(data, *CAROL)
    shown = call(data, "add", "carol", "--kind", "agent", "--role", "submit", "--tenant", "acme")
    assert (shown.exit_code, "kind" in shown.stderr) == (78, True)


def test_the_first_up_makes_an_agents_token_that_decides_nothing_and_a_persons(data: Path) -> None:
    token_files.ensure_tokens(data)
    before = (data / "tokens.toml").read_bytes()
    token_files.ensure_tokens(data)
    assert (data / "tokens.toml").read_bytes() == before
    kept = (token_files.saved(data, name) for name in (token_files.AGENT, token_files.APPROVER))
    agent, approver = (known(data).principal(secret) for secret in kept)
    assert (agent.kind, approver.kind) == (PrincipalKind.AGENT, PrincipalKind.PERSON)
    assert not agent.roles & {Role.APPROVE, Role.RESOLVE, Role.OPERATE, Role.ADMINISTER}
    assert approver.roles == set(ORDINARY)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (data / "tokens").iterdir()}
    assert modes == {"agent": 0o600, "approver": 0o600}


def test_one_reader_of_both_tokens_is_said_and_root_can_part_them(data: Path) -> None:
    token_files.ensure_tokens(data)
    assert "--agent-user" in (token_files.sharing(data) or "")
    with pytest.raises(EmbeddedError, match="No user"):
        token_files.hand_over(data, "no-such-user-anywhere")
    if os.geteuid() != 0:
        with pytest.raises(EmbeddedError, match="only root"):
            token_files.hand_over(data, "root")
        return
    data.parent.chmod(0o711)  # as that of a project would be
    given = token_files.hand_over(data, "nobody")
    assert token_files.sharing(data) is None
    assert (stat.S_IMODE(given.stat().st_mode), given.stat().st_uid) == (0o600, 65534)
    token = given.read_text().strip()
    agent = known(data).principal(token)
    assert (agent.id, agent.kind, agent.roles) == ("nobody", PrincipalKind.AGENT, {Role.SUBMIT})
    assert token not in {token_files.saved(data, name) for name in (token_files.AGENT, token_files.APPROVER)}
    before = (data / "tokens.toml").read_bytes()
    token_files.hand_over(data, "nobody")
    assert (given.read_text().strip(), (data / "tokens.toml").read_bytes()) == (token, before), "it goes on to count"
    with token_files.changed(data / "tokens.toml") as entries:
        entries[:] = [one for one in entries if one.name != "nobody"]
    token_files.hand_over(data, "nobody")
    assert given.read_text().strip() != token, "one that was taken back does not come again"
    child = os.fork()
    if child == 0:
        os._exit(_as_nobody(data, given))
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def _as_nobody(data: Path, given: Path) -> int:
    """0 where the agent's user reads his token, and nothing of the folder."""
    try:
        os.chdir(data.parent)  # what lies above it is not everybody's
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        inside = [Path(data.name) / "tokens" / name for name in ("agent", "approver")]
        readable = [os.access(path, os.R_OK) for path in (Path(given.name), *inside, Path(data.name) / "tokens.toml")]
        return 0 if readable == [True, False, False, False] else 1
    except OSError:
        return 2


def test_a_token_of_the_folder_is_not_sent_elsewhere(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token_files.ensure_tokens(data)
    monkeypatch.setenv("AETHERIS_URL", "http://198.51.100.1:8080")
    with pytest.raises(NotRunningError, match="AETHERIS_TOKEN"):
        local.target(data)
    monkeypatch.setenv("AETHERIS_TOKEN", "mine")
    assert local.target(data).token == "mine"  # noqa: S105 - of a test
    with pytest.raises(NotRunningError, match="only"):
        local.target(data, token_files.APPROVER)


@pytest.mark.parametrize("name", ["nobody", "../tokens.toml", "agent/../approver", ".hidden", ""])
def test_a_name_speaks_by_its_own_token_or_not_at_all(data: Path, name: str) -> None:
    token_files.ensure_tokens(data)
    with pytest.raises(NotRunningError, match="No token"):
        token_files.saved(data, name)


def test_mcp_does_not_approve_by_the_token_that_submits(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token_files.ensure_tokens(data)
    monkeypatch.setattr(local, "_url", lambda _: "http://127.0.0.1:9")
    shown = CliRunner().invoke(app, ["mcp", "--approve-as", "agent", "--data", str(data)])
    assert (shown.exit_code, "same_token" in shown.stderr) == (2, True)
