"""The scan for secrets finds what is planted, in the tree and in the history, and nothing where nothing is."""

import base64
import os
import subprocess
from pathlib import Path
from random import Random

import pytest

from tests.secret_scan import findings, known
from tests.testkit.system import REPOSITORY

ME = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org")


def git(folder: Path, *argv: str) -> None:
    subprocess.run(["git", "-C", str(folder), *ME, *argv], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "--quiet")
    commit(tmp_path, "README.md", "A shop.\n")
    return tmp_path


def commit(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", name)


def planted() -> dict[str, tuple[str, str]]:
    """What kind of secret → the file and the line that give it away; made here, since this file is scanned too."""
    random = Random(7)  # noqa: S311  nobody's secrets
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
    token = base64.b64encode(random.randbytes(30)).decode()
    return {
        "AWS Access Key": ("shop/settings.py", f"KEY = 'AKIA{''.join(random.choices(letters, k=16))}'"),
        "GitHub Token": ("ci.yaml", f"uses: ghp_{''.join(random.choices(letters, k=36))}"),
        "Private Key": ("seal.pem", "-----BEGIN " + "PRIVATE KEY-----"),
        "Basic Auth Credentials": ("shop/tools.py", f"URL = 'https://shop:{random.randbytes(8).hex()}@example.org'"),
        "Base64 High Entropy String": ("shop/pay.py", f"sent = '{token}'"),
        "Hex High Entropy String": ("shop/hex.py", f"sent = '{random.randbytes(32).hex()}'"),
        "Secret Keyword": ("tokens.toml", f"password = '{random.randbytes(6).hex()}x'"),
    }


@pytest.mark.timeout(900)  # every commit is read: a minute of CPU for 1,500 of them
def test_no_secret_is_in_this_tree_nor_was_ever() -> None:
    if not (REPOSITORY / ".git").exists() and "CI" not in os.environ:
        pytest.skip("no repository of git: a copy of the tree has no history")
    assert [str(one) for one in findings(REPOSITORY) if one.sha1 not in known()] == []


def test_a_planted_secret_of_each_kind_is_found(repository: Path) -> None:
    assert findings(repository) == []
    for name, line in planted().values():
        commit(repository, name, f"{line}\n")
    found = {one.kind: one.files for one in findings(repository)}
    assert found == {kind: (name,) for kind, (name, _) in planted().items()}


def test_one_that_was_taken_out_again_is_found_in_the_history(repository: Path) -> None:
    name, line = planted()["AWS Access Key"]
    commit(repository, name, f"{line}\n")
    commit(repository, name, "KEY = None\n")
    assert [(one.kind, one.files) for one in findings(repository)] == [("AWS Access Key", (name,))]


def test_one_that_is_not_committed_yet_is_found(repository: Path) -> None:
    (repository / "README.md").write_text(f"{planted()['GitHub Token'][1]}\n")
    assert [(one.kind, one.files) for one in findings(repository)] == [("GitHub Token", ("README.md",))]


def test_what_is_known_is_told_by_its_value_wherever_it_lies(repository: Path) -> None:
    name, line = planted()["Basic Auth Credentials"]
    commit(repository, name, f"{line}\n")
    (before,) = findings(repository)
    git(repository, "mv", name, "moved.py")
    git(repository, "commit", "--quiet", "--message", "moved")
    assert [one.sha1 for one in findings(repository)] == [before.sha1]
