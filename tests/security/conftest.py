"""The checks of `make security`: each says what it tried, and the end of the run lists them all."""

from collections import defaultdict
from collections.abc import Callable, Generator

import pytest

from tests.testkit.secured import SecuredRig, running_secured

CHECKS = (
    "401",
    "audience",
    "tenant",
    "args",
    "replayed approval",
    "SSRF",
    "canary",
    "TLS",
    "forged record",
    "XSS/CSRF",
)
MISSING: dict[str, str] = {}
"""What there is nothing to check of, and why."""
_SAYS = {"passed": "holds", "xfailed": "does not hold yet", "skipped": "not tried"}

Tried = Callable[[str], None]


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[SecuredRig]:
    with running_secured(tmp_path_factory.mktemp("secured")) as running:
        yield running


@pytest.fixture(autouse=True)
def check(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> None:
    """Which of the ten a test belongs to."""
    marker = request.node.get_closest_marker("security")
    if marker is not None:
        record_property("check", marker.args[0])


@pytest.fixture
def tried(record_property: Callable[[str, object], None]) -> Tried:
    """Says what was tried, for who reads the list."""

    def say(what: str) -> None:
        record_property("tried", what)

    return say


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for each of the ten, and what was tried."""
    found: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    for outcome, reports in terminalreporter.stats.items():
        for report in reports:
            properties = dict(getattr(report, "user_properties", ()))
            if properties.get("check") and (report.when == "call" or not report.passed):
                said = _SAYS.get(outcome, "DOES NOT HOLD")
                found[properties["check"]].append((said, str(properties.get("tried", report.nodeid))))
    if not found:
        return
    terminalreporter.section("security")
    for name in CHECKS:
        for said, what in found.get(name, [("not checked", MISSING.get(name, "was not run"))]):
            terminalreporter.line(f"{name:<18} {said:<18} {what}")
