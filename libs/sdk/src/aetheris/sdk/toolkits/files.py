"""Files below one folder, for tools: a conditional put and a conditional delete (docs/toolkits.md).

The folder is the tool's, never an argument: a name that leads out of it, also by a link, is refused. A put appears
whole or not at all. What a try is about to do is noted before it is done, so that a later try of the same call can
tell its own effect from somebody else's; so a tool made of these is idempotent.
"""

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from aetheris.sdk.context import ToolContext
from aetheris.sdk.outcomes import Confirmed, Drifted, Failed, NotExecuted, StateChange, Verdict

TYPE = "file"
LARGEST = 64 * 1024 * 1024  # bytes
_NOTES = ".aetheris"


class FileChanged(Exception):
    """An earlier try of this call may have acted, and the file is now as neither it nor the caller left it."""


def etag_of(content: bytes) -> str:
    """hex SHA-256."""
    return hashlib.sha256(content).hexdigest()


def put(ctx: ToolContext, root: Path, name: str, content: bytes, *, if_match: str | None = None) -> StateChange:
    """Write a file whole: a new one, or in place of the one whose etag is `if_match`; blocks.

    Raises:
        Failed: the name leads out of `root`, the content is too large, or the file is not as it was said to be.
        FileChanged: nobody can tell whose the file is.
    """
    if len(content) > LARGEST:
        raise Failed(f"larger than {LARGEST} bytes")
    path, wanted = inside(root, name), etag_of(content)
    with _alone(root):
        found = _etag_at(path)
        if found == wanted:
            _note(root, ctx)
        elif found != if_match:
            raise _not_as_reported(root, ctx, found)
        else:
            _note(root, ctx)
            _replace(path, content)
    return StateChange(TYPE, name, "create" if if_match is None else "update", etag=wanted)


def delete(ctx: ToolContext, root: Path, name: str, *, if_match: str) -> StateChange:
    """Delete the file whose etag is `if_match`; blocks.

    Raises:
        Failed: the name leads out of `root`, or the file is not as it was said to be.
        FileChanged: nobody can tell whose doing that is.
    """
    path = inside(root, name)
    with _alone(root):
        found = _etag_at(path)
        if found == if_match:
            _note(root, ctx)
            path.unlink()
        elif found is not None or not _noted(root, ctx):
            raise _not_as_reported(root, ctx, found)
    return StateChange(TYPE, name, "delete", etag=if_match)


def confirm(root: Path, change: StateChange) -> Verdict:
    """Whether a file is as a put or a delete left it; blocks."""
    try:
        found = _etag_at(inside(root, change.resource_id))
    except Failed:
        return Drifted({"name": "leads out of the folder"})
    wanted = None if change.operation == "delete" else change.etag
    if found == wanted:
        return Confirmed((f"sha256 {found}" if found is not None else "no such file",))
    return Drifted({"etag": {"recorded": wanted, "found": found}})


def inside(root: Path, name: str) -> Path:
    """The path of a name below `root`.

    Raises:
        Failed: it lies elsewhere, or among the notes.
    """
    try:
        folder = root.resolve(strict=True)
        path = (folder / name).resolve()
    except (OSError, ValueError):
        raise Failed("no such folder, or no such name") from None
    if folder not in path.parents or _NOTES in path.relative_to(folder).parts:
        raise Failed("the name leads out of the folder")
    return path


def _not_as_reported(root: Path, ctx: ToolContext, found: str | None) -> Exception:
    if _noted(root, ctx):
        return FileChanged()
    return Failed("there is no such file" if found is None else "the file is another than was said")


def _etag_at(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None


def _replace(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, made = tempfile.mkstemp(dir=path.parent, prefix=".put-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(made).replace(path)
    except BaseException:
        Path(made).unlink(missing_ok=True)
        raise


@contextmanager
def _alone(root: Path) -> Generator[None]:
    """One call at a time in a folder."""
    try:
        (root / _NOTES).mkdir(exist_ok=True)
        lock = (root / _NOTES / "lock").open("w")
    except OSError as error:
        raise NotExecuted(f"the folder can't be used: {type(error).__name__}") from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _note(root: Path, ctx: ToolContext) -> None:
    _note_of(root, ctx).touch()


def _noted(root: Path, ctx: ToolContext) -> bool:
    return _note_of(root, ctx).exists()


def _note_of(root: Path, ctx: ToolContext) -> Path:
    return root / _NOTES / hashlib.sha256(ctx.external_key.encode()).hexdigest()
