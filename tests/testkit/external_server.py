"""The external server of `aetheris chaos`, for every test that counts effects."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from aetheris.rigs.chaos import external_server
from aetheris.rigs.chaos.external_server import LOG, READS, ExternalServer, logged, until
from tests.testkit.attempts import cleared_by

__all__ = ["LOG", "ExternalServer", "logged", "running_outside", "until"]


@contextmanager
def running_outside(folder: Path, host: str = "127.0.0.1") -> Generator[ExternalServer]:
    """Run a server for as long as the block lasts; what a failed attempt held back there is let go."""

    def let_go() -> None:
        for file in folder.iterdir():
            if file.is_file() and file.name not in (LOG, READS) and file.suffix not in (".log", ".arrived"):
                file.unlink(missing_ok=True)

    with external_server.running_external_server(folder, host) as running, cleared_by(let_go):
        yield running
