"""The id of an installation, and the names that processes have by it where nobody has named them."""

import os
import secrets
from contextlib import suppress
from pathlib import Path

from aetheris.protocol.base.ids import InvalidName, check_name
from aetheris.runtime.base.refusal import SettingInvalid
from aetheris.runtime.process.settings import RuntimeSettings

_ID_BYTES = 4


def worker_name(settings: RuntimeSettings) -> str:
    """The stable name of this process; where the setting has none, one that no other data folder's process has.

    Raises:
        SettingInvalid: it is no name.
    """
    try:
        return check_name(settings.worker_id or named("worker-0", settings.data), "AETHERIS_WORKER_ID")
    except InvalidName as error:
        raise SettingInvalid(str(error)) from None


def named(process: str, data: Path) -> str:
    """A process's name beyond its installation: `executor-0.5f0c1a7e`."""
    return f"{process}.{installation(data)}"


def process_of(worker_id: str) -> str:
    """The process in a name that `named` made."""
    return worker_id.partition(".")[0]


def installation(data: Path) -> str:
    """The id of a data folder's installation, made at its first call; whoever copies the folder copies the id."""
    path = data / "installation"
    with suppress(FileNotFoundError):
        return path.read_text().strip()
    data.mkdir(parents=True, exist_ok=True)
    made = data / f".installation-{os.getpid()}-{secrets.token_hex(_ID_BYTES)}"
    try:
        with made.open("x") as file:
            file.write(f"{secrets.token_hex(_ID_BYTES)}\n")
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):  # another process was first: its id stands
            os.link(made, path)
    finally:
        made.unlink()
    return path.read_text().strip()
