"""The id of an installation, and the names that processes have by it where nobody has named them."""

import os
import secrets
from contextlib import suppress
from pathlib import Path

import structlog

from aetheris.protocol.base.ids import InvalidName, check_name
from aetheris.runtime.base.refusal import SettingInvalid, StartRefused
from aetheris.runtime.process.settings import RuntimeSettings

_log = structlog.get_logger(__name__)

_ID_BYTES = 4


class InstallationMixed(StartRefused):
    """A folder is that of an installation with another prefix."""

    code = "installation_mixed"


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
    return _once(data / "installation", secrets.token_hex(_ID_BYTES))


def claim(data: Path, prefix: str) -> None:
    """Keep a data folder to the installation of this prefix: the first that comes has it, whoever copies it too.

    Raises:
        InstallationMixed: it is that of another one.
    """
    try:
        held = _once(data / "prefix", prefix)
    except OSError as error:
        _log.warning("the data folder does not say whose it is", error=type(error).__name__)
        return
    if held != prefix:
        owner = f"of the installation {held}" if held else "of an installation without a prefix"
        raise InstallationMixed(
            f"AETHERIS_PREFIX is {prefix or 'not set'}, and the folder {data} is {owner}: "
            "its keys, blobs and locks are not for another. Give each installation a folder and a root of its own"
        )


def claimed(data: Path) -> str | None:
    """The prefix of the installation that has this data folder; None where none has it yet."""
    try:
        return (data / "prefix").read_text().strip()
    except FileNotFoundError:
        return None


def _once(path: Path, text: str) -> str:
    """What the file says, for ever; this, where there is none yet."""
    with suppress(FileNotFoundError):
        return path.read_text().strip()
    path.parent.mkdir(parents=True, exist_ok=True)
    made = path.with_name(f".{path.name}-{os.getpid()}-{secrets.token_hex(_ID_BYTES)}")
    try:
        with made.open("x") as file:
            file.write(f"{text}\n")
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):  # another process was first: what it says stands
            os.link(made, path)
    finally:
        made.unlink(missing_ok=True)
    return path.read_text().strip()
