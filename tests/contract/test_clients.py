"""The two clients of the gateway are one: who waits has what the other has, made from it."""

import inspect
import runpy
from pathlib import Path

from aetheris.sdk.client import AsyncClient, Client
from aetheris.sdk.client.asynchronous_runs import AsyncSessionRun
from aetheris.sdk.client.blocking_runs import SessionRun
from tests.testkit.system import REPOSITORY


def test_the_client_that_waits_is_made_from_the_other() -> None:
    generate = runpy.run_path(str(REPOSITORY / "libs" / "sdk" / "generate.py"))
    for source in generate["SOURCES"]:
        committed: Path = generate["generated"](source)
        assert committed.read_text() == generate["rendered"](source), "run `make docs`"


def test_both_have_the_same_methods_and_parameters() -> None:
    assert _methods(Client) == _methods(AsyncClient)
    assert _methods(SessionRun) == _methods(AsyncSessionRun)
    assert not any(inspect.iscoroutinefunction(method) for _, method in inspect.getmembers(Client))


def _methods(client: type[object]) -> dict[str, list[str]]:
    found = inspect.getmembers(client, inspect.isfunction)
    return {name: list(inspect.signature(method).parameters) for name, method in found if not name.startswith("_")}
