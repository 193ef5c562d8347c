"""An approver's signature by the command line: what is signed is what is shown, and ssh-keygen signs it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aetheris.cli import signing
from aetheris.cli.console import CommandError
from aetheris.protocol.api import HumanRequest, ToSign
from aetheris.protocol.base.keys import args_hash
from aetheris.protocol.base.sshsig import read_signature
from aetheris.protocol.planning.approval_text import ApprovalText, SignedRequest
from tests.testkit.ssh_keys import keygen

ARGS: dict[str, Any] = {"to": "bob", "amount": 5}
REQUEST = SignedRequest(
    installation=None,
    tenant="acme",
    job="j",
    step="a",
    request="j:1",
    tool="pay",
    tool_version="1",
    args_hash=args_hash(ARGS),
    rule="r\napprover: x",
    policy_hash="p",
    approvals=2,
)
FIELD = {"name": "amount", "type": "number", "label": "Amount"}


def asked(arguments: Any = ARGS, *, signed: bool = True) -> HumanRequest:
    named = {name: getattr(REQUEST, name) for name in REQUEST.__slots__}
    return HumanRequest(
        request={"context": {"arguments": arguments}, "fields": [FIELD]},
        job_id="j",
        node_id="a",
        status="waiting",
        execution_state="waiting",
        to_sign=ToSign(**named, approver="bob") if signed else None,
    )


def test_the_text_is_made_of_what_is_shown_and_no_field_makes_a_line_of_its_own() -> None:
    text = signing.text("j:1", asked(), "approve", None, break_glass=False)
    assert text == ApprovalText(asked=REQUEST, approver="bob", decision="approve").encoded()
    lines = text.decode().splitlines()
    assert lines[0] == "aetheris approval 1"
    assert [line.partition(":")[0] for line in lines[1:]] == [
        *REQUEST.__slots__,
        "approver",
        "decision",
        "data_hash",
        "break_glass",
    ]
    assert 'rule: "r\\napprover: x"' in lines
    assert b"break_glass: true\n" in signing.text("j:1", asked(), "reject", None, break_glass=True)


def test_an_edit_is_signed_for_all_the_arguments_that_it_makes() -> None:
    text = signing.text("j:1", asked(), "edit", {"amount": 4}, break_glass=False)
    assert f'data_hash: "{args_hash(ARGS | {"amount": 4})}"'.encode() in text
    with pytest.raises(CommandError, match="amount"):
        signing.text("j:1", asked(), "edit", {"amount": "four"}, break_glass=False)


@pytest.mark.parametrize("arguments", [ARGS | {"amount": 5000}, None, "too large to be shown"])
def test_nothing_is_signed_about_other_arguments_than_are_shown(arguments: Any) -> None:
    with pytest.raises(CommandError, match="are not those that would be signed"):
        signing.text("j:1", asked(arguments), "approve", None, break_glass=False)


def test_where_no_signature_is_asked_for_none_is_made() -> None:
    with pytest.raises(CommandError, match="wants no signature"):
        signing.text("j:1", asked(signed=False), "approve", None, break_glass=False)


def test_ssh_keygen_signs_and_its_refusal_is_told(tmp_path: Path) -> None:
    key, message = keygen(tmp_path, "bob"), signing.text("j:1", asked(), "approve", None, break_glass=False)
    assert read_signature(signing.signed(message, key)).holds(message)
    with pytest.raises(CommandError, match="did not sign with"):
        signing.signed(message, tmp_path / "none")


def test_without_ssh_keygen_the_way_out_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CommandError, match=r"there is no ssh-keygen here.*--text"):
        signing.signed(b"text", tmp_path / "bob")


def test_a_file_that_holds_no_signature_is_not_sent(tmp_path: Path) -> None:
    (tmp_path / "huge").write_text("x" * 5000)
    (tmp_path / "odd").write_bytes(b"\xff")
    for name in ("huge", "odd"):
        with pytest.raises(CommandError, match="holds no SSH signature"):
            signing.read(tmp_path / name)


def test_every_field_of_a_request_changes_the_text() -> None:
    first = ApprovalText(asked=REQUEST, approver="bob", decision="approve")
    others = [replace(first, asked=replace(REQUEST, **{name: "?"})) for name in REQUEST.__slots__]
    others += [replace(first, approver="eve"), replace(first, decision="reject"), replace(first, break_glass=True)]
    assert len({one.encoded() for one in (first, *others)}) == len(others) + 1


@pytest.mark.parametrize("other", ["j:2", "other:1", "j"])
def test_no_other_request_is_signed_than_was_asked_about(other: str) -> None:
    with pytest.raises(CommandError, match="another request"):
        signing.text(other, asked(), "approve", None, break_glass=False)
