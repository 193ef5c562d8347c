"""The file of allowed signers as services read it: what can't be used stops them, by name, file and line."""

from pathlib import Path

import pytest

from aetheris.runtime.process.signers_file import SignersFileInvalid, load_signers
from tests.testkit.ssh_keys import SshSigner


def test_a_file_is_read_and_without_one_nobody_signs(tmp_path: Path) -> None:
    file = tmp_path / "allowed_signers"
    file.write_text(SshSigner(1).line("bob") + SshSigner(2).line("carol"))
    assert [line.principals for line in load_signers(file, "pay").lines] == [("bob",), ("carol",)]
    assert load_signers(None).lines == ()


def test_a_rule_that_nobody_could_satisfy_stops_the_start() -> None:
    with pytest.raises(SignersFileInvalid, match="rule 'pay' asks for signatures"):
        load_signers(None, "pay")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\n# ok\nbob cert-authority ssh-ed25519 AAAA\n", ":3: cert-authority"),
        (b"bob ssh-rsa AAAA\n", ":1: holds neither an Ed25519 key nor a passkey"),
        (b"\xff\n", "is no UTF-8"),
        (b"#" * (1024 * 1024 + 1), "is larger than 1024 KiB"),
    ],
)
def test_what_cannot_be_used_is_named_with_its_line(tmp_path: Path, content: bytes, why: str) -> None:
    file = tmp_path / "allowed_signers"
    file.write_bytes(content)
    with pytest.raises(SignersFileInvalid, match=why):
        load_signers(file)
    with pytest.raises(SignersFileInvalid, match="No such file"):
        load_signers(tmp_path / "none")
